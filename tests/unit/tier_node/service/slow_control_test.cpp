// The same on the control port: connections that are mute or drip, before and after the HTTP/2 handshake.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <deque>

#include "terrace/v1/node.grpc.pb.h"
#include "tests/unit/tier_node/service/slow_client.h"
#include "tier_node/service/control_server.h"

namespace terrace::node {
namespace {

using namespace test;

namespace v1 = ::terrace::v1;

// What an HTTP/2 client says first: preface, empty settings, the server's settings acknowledged.
const std::string kGreeting = std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\x04\0\0\0\0\0", 9) +
                              std::string("\0\0\0\x04\x01\0\0\0\0", 9);

// A frame of HTTP/2; clients' streams have odd numbers.
std::string http2_frame(std::uint8_t type, std::uint8_t flags, const std::string& payload, std::uint32_t stream = 1) {
  std::string frame(3, '\0');
  frame[1] = static_cast<char>(payload.size() >> 8);
  frame[2] = static_cast<char>(payload.size());
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}
// A call of Status that is to be answered for ever: HEADERS (HPACK, nothing compressed), DATA with its one message.
std::string watch_call(std::uint32_t stream = 1) {
  const auto text = [](const std::string& value) { return static_cast<char>(value.size()) + value; };
  const std::string headers = "\x83\x86" + ("\x04" + text("/terrace.v1.Node/Status")) + "\x01" + text("node") +
                              "\x0f\x10" + text("application/grpc") + std::string(1, '\0') + text("te") +
                              text("trailers");
  v1::StatusRequest request;
  request.set_interval_ms(50);
  const std::string message = request.SerializeAsString();
  return http2_frame(1, 4, headers, stream) + http2_frame(0, 1, std::string(4, '\0') + text(message), stream);
}

std::vector<std::byte> as_bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class SlowControlClient : public SlowClient {
 protected:
  void start_control(const ControlOptions& options) {
    control_ = must(ControlServer::start("127.0.0.1:0", node_->sessions(), node_->loader(), {}, options));
    stub_ = v1::Node::NewStub(grpc::CreateChannel(control_->address(), grpc::InsecureChannelCredentials()));
  }
  grpc::Status describe() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kHang);
    v1::DescribeReply reply;
    return stub_->Describe(&context, {}, &reply);
  }
  // Whether a stream of Status gets one of the places that there are.
  bool can_watch() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kHang);
    v1::StatusRequest request;
    request.set_interval_ms(60'000);
    const auto reader = stub_->Status(&context, request);
    v1::StatusReply reply;
    const bool got = reader->Read(&reply);
    context.TryCancel();
    (void)reader->Finish();
    return got;
  }
  void expect_served() {
    for (int i = 0; i < 20; ++i) {
      const grpc::Status status = describe();
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    expect_others_are_served();
  }
  // For an honest one that may be closed as well, perhaps under its call: it connects again.
  void expect_served_after_new_tries() {
    for (int i = 0; i < 20; ++i) {
      const auto end = std::chrono::steady_clock::now() + kHang;
      grpc::Status status = describe();
      while (!status.ok() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(20ms);
        status = describe();
      }
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    expect_others_are_served();
  }

  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<v1::Node::Stub> stub_;
};

ControlOptions never() {
  constexpr std::chrono::hours kNever(100);
  return {kNever, kNever, kNever, kNever};
}

TEST_F(SlowControlClient, ByteByByteOrMute_CallsAreAnsweredAndTheConnectionsEnd) {
  ControlOptions options = never();
  options.handshake_timeout = 500ms;
  start(patient());
  start_control(options);
  const std::vector<std::byte> bytes = as_bytes(kGreeting.substr(0, 24) + std::string(4096, '\0'));
  std::deque<RawSocket> sockets(40);
  std::deque<Dripper> drippers;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ASSERT_TRUE(sockets[i].connect(control_->port()));
    if (i % 2 == 0) drippers.emplace_back(sockets[i], bytes);
  }
  expect_served();
  for (std::size_t i = 0; i < sockets.size(); ++i)
    EXPECT_TRUE(sockets[i].closed_within(kHang)) << (i % 2 == 0 ? "drips " : "mute ") << i;
  drippers.clear();
  expect_nothing_left();
}

TEST_F(SlowControlClient, MuteAfterTheHandshake_ClosedAsIdle) {
  ControlOptions options = never();
  options.idle_timeout = 300ms;
  start(patient());
  start_control(options);
  std::deque<RawSocket> sockets(10);
  for (RawSocket& socket : sockets) {
    ASSERT_TRUE(socket.connect(control_->port()));
    socket.write(as_bytes(kGreeting));
  }
  expect_served_after_new_tries();
  for (RawSocket& socket : sockets) EXPECT_TRUE(socket.closed_within(kHang));
  expect_served_after_new_tries();
  expect_nothing_left();
}

// Mute ones, ones that are mute behind the handshake, and calls without their end: those that say least make room.
TEST_F(SlowControlClient, MoreConnectionsThanAllowed_TheSlowMakeRoom_OthersGoOn) {
  ControlOptions options = never();
  options.max_connections = 16;
  start(patient());
  start_control(options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(describe().ok());  // the honest one has said more than any of them
  const std::string call = watch_call();
  const std::string said[] = {"", kGreeting, kGreeting + call.substr(0, call.size() - 1)};
  std::deque<RawSocket> sockets(48);
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ASSERT_TRUE(sockets[i].connect(control_->port()));
    (void)sockets[i].try_write(as_bytes(said[i % 3]));
    if (i == 14) std::this_thread::sleep_for(1100ms);  // all places are taken, by some that had time to speak
  }
  // Those that came just now are spared as long as there is another: on a slow machine that is the honest one.
  expect_served_after_new_tries();
  // Somebody new gets in as well.
  const auto stranger =
      v1::Node::NewStub(grpc::CreateCustomChannel(control_->address(), grpc::InsecureChannelCredentials(), [] {
        grpc::ChannelArguments own;
        own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        return own;
      }()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kHang);
  v1::DescribeReply reply;
  EXPECT_TRUE(stranger->Describe(&context, {}, &reply).ok());
  std::size_t closed = 0;
  for (RawSocket& socket : sockets) closed += socket.closed_within(1ms) ? 1 : 0;
  EXPECT_GE(closed, 30u);
  expect_nothing_left();
}

// The lowest descriptors are free again when the scope is over.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int highest = ::dup(0);  // the lowest that is free
    ::close(highest);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(highest);
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptorLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_F(SlowControlClient, NoDescriptorLeftForAConnection_ListensOn) {
  std::atomic<int> told = 0;
  start(patient());
  ControlOptions options = never();
  options.log = Logger::to_function(LogLevel::kWarn, [&told](LogLevel, std::string_view) { ++told; });
  // The sanitizer of undefined behaviour looks at a logger's type once, and needs a descriptor for that.
  options.log.warn("before");
  start_control(options);
  expect_served();
  std::deque<RawSocket> sockets(8);
  {
    const NoDescriptorLeft none;
    for (RawSocket& socket : sockets) ASSERT_TRUE(socket.connect(control_->port()));
    const auto end = std::chrono::steady_clock::now() + kHang;
    while (told == 1 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(told, 2);
  for (RawSocket& socket : sockets) {
    socket.write(as_bytes(kGreeting));
    EXPECT_TRUE(socket.answered_within(kHang));
    EXPECT_FALSE(socket.closed_within(1ms));
  }
  stub_ = v1::Node::NewStub(grpc::CreateChannel(control_->address(), grpc::InsecureChannelCredentials()));
  expect_served();
  expect_nothing_left();
}

// Calls that are open keep their connection from being idle, and their places from everyone else.
TEST_F(SlowControlClient, MuteWatchers_AnswerNoPingAndLoseTheirPlaces) {
  start(patient());
  const auto await_watch = [&](bool possible) {
    const auto end = std::chrono::steady_clock::now() + kHang;
    while (can_watch() != possible && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(20ms);
    return can_watch() == possible;
  };
  const auto watch = [&](std::deque<RawSocket>& sockets) {
    for (RawSocket& socket : sockets) {
      ASSERT_TRUE(socket.connect(control_->port()));
      socket.write(as_bytes(kGreeting + watch_call()));
    }
  };
  {
    start_control(never());
    std::deque<RawSocket> sockets(32);
    watch(sockets);
    EXPECT_TRUE(await_watch(false)) << "they do not take all places";
  }
  ControlOptions options = never();
  options.keepalive_time = options.keepalive_timeout = 500ms;
  start_control(options);
  std::deque<RawSocket> sockets(32);
  watch(sockets);
  expect_served();
  for (RawSocket& socket : sockets) EXPECT_TRUE(socket.closed_within(kHang));
  EXPECT_TRUE(await_watch(true));
  expect_nothing_left();
}

// HTTP/2 frames that never end: a frame's header, HEADERS of a call, a type that no one knows. None is a call yet.
TEST_F(SlowControlClient, DripsAFrameAfterTheHandshake_ClosedAsIdle) {
  ControlOptions options = never();
  options.idle_timeout = 300ms;
  start(patient());
  start_control(options);
  const std::string endless(16'000, '\x83');  // HPACK's ":method: POST", again and again
  const std::string frames[] = {std::string(2, '\0'), http2_frame(1, 4, endless), http2_frame(0x10, 0, endless)};
  std::deque<RawSocket> sockets(std::size(frames));
  std::deque<Dripper> drippers;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ASSERT_TRUE(sockets[i].connect(control_->port()));
    sockets[i].write(as_bytes(kGreeting));
    drippers.emplace_back(sockets[i], as_bytes(frames[i]));
  }
  expect_served();
  for (std::size_t i = 0; i < sockets.size(); ++i) EXPECT_TRUE(sockets[i].closed_within(kHang)) << i;
  drippers.clear();
  expect_nothing_left();
}

// What no limit ends: calls whose one message never ends. Twice as many as there are threads.
TEST_F(SlowControlClient, CallsWithoutTheEndOfTheirMessage_HoldNoThreads) {
  start(patient());
  start_control(never());
  std::deque<RawSocket> sockets(4);
  for (RawSocket& socket : sockets) {
    ASSERT_TRUE(socket.connect(control_->port()));
    std::string bytes = kGreeting;
    for (std::uint32_t i = 0; i < 128; ++i) {
      const std::string call = watch_call(2 * i + 1);
      bytes += call.substr(0, call.size() - 1);
    }
    socket.write(as_bytes(bytes));
    ASSERT_TRUE(socket.answered_within(kHang));
  }
  expect_served();
  EXPECT_TRUE(can_watch());
  control_.reset();
  for (RawSocket& socket : sockets) EXPECT_TRUE(socket.closed_within(kHang));
  expect_nothing_left();
}

}  // namespace
}  // namespace terrace::node
