// Frames that no honest coordinator sends: the session that sent them ends by name, and the others go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "common/transport/tcp/tcp.h"
#include "tests/unit/tier_node/service/data_server_testing.h"

namespace terrace::node {
namespace hostile_frames_test {

using test::collect;
using test::DataServerTest;
using test::error_of;
using test::expect_serves;
using test::kSeed;
using test::LaneClient;
using test::must;
using test::NodeParts;
using test::NodeSettings;
using test::TestBatch;
using test::TinyModel;
using ::testing::HasSubstr;

TEST_F(DataServerTest, WeightThatIsNaN_EndsThatSessionByName) {
  NodeParts node(model_);
  node.serve();
  const SessionRef bad = node.ready_session(), other = node.ready_session();
  LaneClient client = node.connect(*bad, wire::Lane::kLatency), good = node.connect(*other, wire::Lane::kLatency);
  client.greet();
  good.greet();
  TestBatch batch(model_, 0, 2, 2, kSeed);
  batch.pairs[1].weight = std::numeric_limits<float>::quiet_NaN();
  client.send_batch(batch, 1);
  const auto answer = client.receive_answer();
  EXPECT_EQ(error_of(answer).code, ErrorCode::kCorrupt);
  EXPECT_THAT(error_of(answer).text, HasSubstr("weight"));
  EXPECT_TRUE(client.drained());
  EXPECT_TRUE(bad->ended());
  expect_serves(model_, good, *other);
}

TEST_F(DataServerTest, FramesThatDoNotBelong_EndThatSessionByName) {
  NodeParts node(model_);
  node.serve();
  const SessionRef other = node.ready_session();
  LaneClient good = node.connect(*other, wire::Lane::kLatency);
  good.greet();
  const TestBatch batch(model_, 0, 2, 2, kSeed);
  const std::vector<std::pair<const char*, std::function<void(LaneClient&)>>> cases = {
      {"a batch came on the weights lane", [&](LaneClient& client) { client.send_batch(batch, 1); }},
      {"does not send", [](LaneClient& client) { client.send_plain(wire::FrameType::kReply, 1); }},
      {"names session",
       [](LaneClient& client) {
         client.set_session(1);
         client.send_plain(wire::FrameType::kPing, 1);
       }},
  };
  for (const auto& [says, send] : cases) {
    const SessionRef session = node.ready_session();
    LaneClient client = node.connect(*session, wire::Lane::kWeights);
    client.greet();
    send(client);
    const auto answer = client.receive_answer();
    EXPECT_THAT(error_of(answer).text, HasSubstr(says));
    EXPECT_TRUE(client.drained());
    EXPECT_TRUE(session->ended()) << says;
  }
  expect_serves(model_, good, *other);
}

TEST_F(DataServerTest, EveryByteOfABatchFlipped_NeverAWrongAnswer) {
  // The checksum catches each; what is tested is that the node answers, closes and frees, again and again.
  NodeParts node(model_);
  node.serve();
  const TestBatch batch(model_, 0, 1, 2, kSeed);
  wire::FrameBuilder builder;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 20; ++i) {
    const SessionRef session = node.ready_session();
    LaneClient client = node.connect(*session, wire::Lane::kLatency);
    client.greet();
    wire::FrameHeader header = client.header(wire::FrameType::kBatch);
    header.epoch = 1;
    wire::BatchInfo info;
    info.n_rows = 1;
    info.n_pairs = 2;
    info.n_ranges = 1;
    info.d_model = batch.d_model();
    info.gate_class = info.up_class = batch.kernels.gate_class();
    builder.begin(header);
    wire::add_batch(builder, info, batch.gate_rows, {}, batch.pairs, batch.ranges);
    std::vector<std::byte> bytes;
    for (const auto part : builder.finish()) bytes.insert(bytes.end(), part.begin(), part.end());
    bytes[wire::kHeaderBytes + random() % (bytes.size() - wire::kHeaderBytes)] ^= std::byte{4};
    client.send_bytes(bytes);
    EXPECT_EQ(error_of(client.receive_answer()).code, ErrorCode::kCorrupt);
    EXPECT_TRUE(client.drained());
  }
  EXPECT_EQ(node.store().usage().reserved, 0u);
}

// 64 bytes that announce a body of `body_bytes`.
std::vector<std::byte> announce(const wire::FrameHeader& header, std::uint32_t body_bytes) {
  wire::FrameBuilder builder;
  builder.begin(header);
  std::vector<std::byte> bytes;
  for (const auto part : builder.finish()) bytes.insert(bytes.end(), part.begin(), part.end());
  std::memcpy(bytes.data() + 40, &body_bytes, sizeof body_bytes);
  return bytes;
}

TEST_F(DataServerTest, LargeFrameAnnouncedBeforeHello_ClosedAtItsHeader) {
  transport::TcpTransport tcp;
  NodeSettings settings;
  settings.data.hello_timeout = std::chrono::hours(1);
  NodeParts node(model_, settings);
  node.serve(tcp, "127.0.0.1:0");
  const SessionRef session = node.ready_session();
  LaneClient stranger = node.connect(*session, wire::Lane::kBulk);
  stranger.send_bytes(announce(stranger.header(wire::FrameType::kHello), 512));
  EXPECT_TRUE(stranger.drained()) << "the node waits for the rest of it";
}

TEST_F(DataServerTest, FrameBeyondTheWholeGrantOfItsLane_ClosedAtItsHeader) {
  transport::TcpTransport tcp;
  NodeSettings settings;
  settings.sessions.lease = std::chrono::hours(1);
  NodeParts node(model_, settings);
  node.serve(tcp, "127.0.0.1:0");
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kWeights);
  const wire::Welcome welcome = client.greet();
  EXPECT_EQ(welcome.largest_frame, welcome.credit_bytes);
  client.send_bytes(announce(client.header(wire::FrameType::kSlab), static_cast<std::uint32_t>(welcome.credit_bytes)));
  EXPECT_TRUE(client.drained()) << "the node waits for the rest of it";
}

TEST_F(DataServerTest, GarbageOverTcp_ClosedAndOthersGoOn) {
  transport::TcpTransport tcp;
  NodeParts node(model_);
  node.serve(tcp, "127.0.0.1:0");
  const SessionRef session = node.ready_session();
  LaneClient good = node.connect(*session, wire::Lane::kLatency);
  good.greet();
  std::mt19937 random(kSeed);
  for (int i = 0; i < 10; ++i) {
    LaneClient stranger = node.connect(*session, wire::Lane::kBulk);
    std::array<std::byte, 200> garbage;
    for (std::byte& b : garbage) b = static_cast<std::byte>(random());
    stranger.send_bytes(garbage);
    EXPECT_TRUE(stranger.drained());
  }
  expect_serves(model_, good, *session);
}

}  // namespace hostile_frames_test
}  // namespace terrace::node
