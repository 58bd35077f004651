// Clients that are mute, or send a byte now and then, on both ports; and such that go in the middle of a frame. None
// keeps anyone else from being served, and each is gone once its time is over.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "common/transport/tcp/tcp.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tests/unit/common/transport/raw_socket.h"
#include "tests/unit/tier_node/support/node_parts.h"
#include "tier_node/service/control_server.h"

namespace terrace::node {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::LaneClient;
using test::must;
using test::NodeParts;
using test::NodeSettings;
using test::TestBatch;
using test::TinyModel;
using ::testing::HasSubstr;
using transport::test::RawSocket;

constexpr unsigned kSeed = 4711;
constexpr auto kHang = 60s;  // far more than any limit here

// Sends its bytes one at a time, a moment apart, from a thread of its own, until they are all sent or nobody listens.
class Dripper {
 public:
  Dripper(RawSocket& socket, std::vector<std::byte> bytes)
      : socket_(socket), bytes_(std::move(bytes)), thread_([this] { drip(); }) {}
  ~Dripper() {
    stop_ = true;
    thread_.join();
  }
  std::size_t sent() const { return sent_; }

 private:
  void drip() {
    while (!stop_ && sent_ < bytes_.size() && socket_.try_write(std::span(bytes_).subspan(sent_, 1))) {
      ++sent_;
      std::this_thread::sleep_for(10ms);
    }
  }
  RawSocket& socket_;
  const std::vector<std::byte> bytes_;
  std::atomic<std::size_t> sent_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

std::vector<std::byte> contiguous(wire::FrameBuilder& builder) {
  std::vector<std::byte> all;
  for (const auto part : builder.finish()) all.insert(all.end(), part.begin(), part.end());
  return all;
}
std::vector<std::byte> hello_bytes(const Session& session, wire::Lane lane) {
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kHello, .lane = lane, .session = session.id(), .sequence = 1});
  wire::Hello hello;
  hello.token = session.token();
  hello.largest_frame = session.limits().largest_peer_frame;
  wire::add_hello(builder, hello);
  return contiguous(builder);
}
std::vector<std::byte> batch_bytes(const TinyModel& model, const Session& session) {
  const TestBatch batch(model, 0, 2, 2, kSeed);
  wire::BatchInfo info;
  info.n_rows = 2;
  info.n_pairs = static_cast<std::uint32_t>(batch.pairs.size());
  info.n_ranges = 1;
  info.d_model = batch.d_model();
  info.gate_class = info.up_class = batch.kernels.gate_class();
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kBatch, .session = session.id(), .sequence = 2, .epoch = 1});
  wire::add_batch(builder, info, batch.gate_rows, {}, batch.pairs, batch.ranges);
  return contiguous(builder);
}

class SlowClient : public ::testing::Test {
 protected:
  void start(const NodeSettings& settings) {
    node_ = std::make_unique<NodeParts>(model_, settings);
    node_->serve(tcp_, "127.0.0.1:0");
    data_port_ = static_cast<std::uint16_t>(std::stoi(node_->address().substr(node_->address().rfind(':') + 1)));
    other_ = node_->ready_session();
    good_.reset(new LaneClient(node_->connect(*other_, wire::Lane::kLatency)));
    good_->greet();
  }
  void expect_others_are_served() {
    other_->extend_lease(std::chrono::steady_clock::now() + kHang);
    const TestBatch batch(model_, 0, 3, 2, kSeed);
    good_->send_batch(batch, 1);
    const auto reply = good_->receive_answer();
    ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
    std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
    test::add_reply_sums(*reply, batch, *other_, sums);
    EXPECT_EQ(sums, batch.expected(model_));
  }
  // Only what the honest session holds is left.
  void expect_nothing_left() {
    other_->end(Error(ErrorCode::kPeerGone, "the test is over"));
    EXPECT_TRUE(good_->drained());
    node_->stop_server();
    EXPECT_EQ(node_->store().usage().reserved, 0u);
  }

  TinyModel model_;
  transport::TcpTransport tcp_;
  std::unique_ptr<NodeParts> node_;
  std::uint16_t data_port_ = 0;
  SessionRef other_;
  std::unique_ptr<LaneClient> good_;
};

NodeSettings patient() {
  NodeSettings settings;
  settings.sessions.lease = std::chrono::hours(1);
  return settings;
}

TEST_F(SlowClient, HelloByteByByte_ClosedAtTheHelloLimitHoweverManyBytesCame) {
  NodeSettings settings = patient();
  settings.data.hello_timeout = 200ms;
  start(settings);
  RawSocket socket;
  ASSERT_TRUE(socket.connect(data_port_));
  const Dripper drip(socket, hello_bytes(*other_, wire::Lane::kBulk));  // whole after more than a second
  expect_others_are_served();
  EXPECT_TRUE(socket.closed_within(kHang));
  EXPECT_LT(drip.sent(), 128u) << "it had its time to the end";
  expect_others_are_served();
  expect_nothing_left();
}

TEST_F(SlowClient, ManyConnectionsThatDripOrAreMute_OthersGetInAndAreServed) {
  NodeSettings settings = patient();
  settings.data.hello_timeout = std::chrono::hours(1);
  settings.data.max_strangers = 8;
  start(settings);
  std::deque<RawSocket> sockets(24);
  std::deque<Dripper> drippers;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ASSERT_TRUE(sockets[i].connect(data_port_));
    if (i % 2 == 0) drippers.emplace_back(sockets[i], hello_bytes(*other_, wire::Lane::kBulk));
  }
  LaneClient late = node_->connect(*other_, wire::Lane::kWeights);
  late.greet();
  expect_others_are_served();
  expect_nothing_left();
}

TEST_F(SlowClient, BatchByteByByteWithoutHeartbeats_LeaseEndsThatSessionByNameAndOthersAreServed) {
  NodeSettings settings;
  settings.sessions.lease = 400ms;
  start(settings);
  other_->extend_lease(std::chrono::steady_clock::now() + kHang);
  const SessionRef slow = node_->ready_session();
  RawSocket socket;
  ASSERT_TRUE(socket.connect(data_port_));
  socket.write(hello_bytes(*slow, wire::Lane::kLatency));
  const Dripper drip(socket, batch_bytes(model_, *slow));
  expect_others_are_served();
  EXPECT_TRUE(socket.closed_within(kHang));
  ASSERT_TRUE(slow->ended());
  EXPECT_EQ(slow->end_reason().code(), ErrorCode::kDeadline);
  EXPECT_THAT(slow->end_reason().text(), HasSubstr("lease"));
  expect_others_are_served();
  expect_nothing_left();
}

TEST_F(SlowClient, MuteAfterHelloWithoutHeartbeats_TheSame) {
  NodeSettings settings;
  settings.sessions.lease = 300ms;
  start(settings);
  other_->extend_lease(std::chrono::steady_clock::now() + kHang);
  const SessionRef slow = node_->ready_session();
  LaneClient mute = node_->connect(*slow, wire::Lane::kLatency);
  mute.greet();
  const auto goodbye = mute.receive_answer();
  EXPECT_THAT(error_of(goodbye).text, HasSubstr("lease"));
  EXPECT_TRUE(mute.drained());
  EXPECT_TRUE(slow->ended());
  expect_others_are_served();
  expect_nothing_left();
}

TEST_F(SlowClient, GoneInTheMiddleOfAFrame_AtEveryPlace_OthersAreServedAndTheSessionMayComeBack) {
  start(patient());
  const SessionRef session = node_->ready_session();
  LaneClient other_lane = node_->connect(*session, wire::Lane::kBulk);  // without any the session would end
  other_lane.greet();
  const std::vector<std::byte> hello = hello_bytes(*session, wire::Lane::kLatency);
  const std::vector<std::byte> batch = batch_bytes(model_, *session);
  for (std::size_t n = 1; n < hello.size(); n += 9) {
    RawSocket socket;
    ASSERT_TRUE(socket.connect(data_port_));
    socket.write(std::span(hello).first(n));
  }
  for (std::size_t n = 1; n < batch.size(); n += 61) {
    RawSocket socket;
    ASSERT_TRUE(socket.connect(data_port_));
    socket.write(hello);
    ASSERT_TRUE(socket.answered_within(kHang));  // a batch before the welcome would be a breach
    socket.write(std::span(batch).first(n));
    if (n % 2 == 0) socket.reset();
  }
  expect_others_are_served();
  EXPECT_FALSE(session->ended()) << "a lost link is no breach: "
                                 << (session->ended() ? session->end_reason().text() : "");
  session->end(Error(ErrorCode::kPeerGone, "the case is over"));
  expect_nothing_left();
}

// ---- control port --------------------------------------------------------------------------------------------------

TEST_F(SlowClient, ControlPortByteByByteOrMute_CallsAreAnsweredAndTheConnectionsEnd) {
  start(patient());
  NodeInfo info;
  const auto control = must(ControlServer::start("127.0.0.1:0", node_->sessions(), node_->loader(), info));
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(4096, '\0');
  const auto bytes = std::as_bytes(std::span(preface));
  std::deque<RawSocket> sockets(40);
  std::deque<Dripper> drippers;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ASSERT_TRUE(sockets[i].connect(control->port()));
    if (i % 2 == 0) drippers.emplace_back(sockets[i], std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  const auto stub =
      terrace::v1::Node::NewStub(grpc::CreateChannel(control->address(), grpc::InsecureChannelCredentials()));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kHang);
    terrace::v1::DescribeReply reply;
    const grpc::Status status = stub->Describe(&context, {}, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  expect_others_are_served();
  for (std::size_t i = 0; i < sockets.size(); ++i)
    EXPECT_TRUE(sockets[i].closed_within(kHang)) << (i % 2 == 0 ? "drips " : "mute ") << i;
  drippers.clear();
  expect_nothing_left();
}

}  // namespace
}  // namespace terrace::node
