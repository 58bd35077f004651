// Sessions whose data connections are sealed: served as others are, counted as they travel, ended by a bit on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/transport/faulty/faulty.h"
#include "tests/unit/tier_node/service/data_server_testing.h"

namespace terrace::node {
namespace sealed_session_test {

using namespace test;
using ::testing::HasSubstr;

NodeSettings sealing() {
  NodeSettings settings;
  settings.sessions.limits.seal = true;
  return settings;
}

class SealedSession : public ::testing::Test {
 protected:
  const TinyModel model_;
};

TEST_F(SealedSession, ServedToTheBit_AndCountedAsItTravels) {
  NodeParts node(model_, sealing());
  node.serve();
  const SessionRef session = node.ready_session();
  EXPECT_NE(session->data_cipher(), security::Cipher::kPlain);
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  const wire::Welcome welcome = client.greet();
  const std::uint64_t before = session->counters().bytes_received.load();
  const TestBatch batch(model_, 0, 3, 2, kSeed);
  client.send_batch(batch, 1);
  const std::uint64_t sent = client.last_frame_bytes() + wire::kSealBytes;
  const auto reply = client.receive_answer();
  ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
  EXPECT_EQ(reply->header().flags, wire::kFlagNoChecksum) << "the seal does more";
  std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
  add_reply_sums(*reply, batch, *session, sums);
  EXPECT_EQ(sums, batch.expected(model_));
  EXPECT_EQ(session->counters().bytes_received.load() - before, sent);
  EXPECT_EQ(reply->header().credit_bytes, sent) << "as it was taken";
  EXPECT_EQ(client.credit_bytes(), welcome.credit_bytes + sent);
}

TEST_F(SealedSession, BitChangedOnTheWay_EndsTheSessionByNameAndOthersGoOn) {
  transport::LoopbackTransport loopback;
  // In order: challenge, proof, accept, hello, welcome; then the batch.
  transport::FaultScript script;
  script.faults = {{.kind = transport::Fault::Kind::kCorrupt,
                    .direction = transport::Direction::kIn,
                    .frame = 5,
                    .bit = 8 * wire::kHeaderBytes + 5}};
  transport::FaultyTransport faulty(transport::test::borrowed(loopback), script);
  NodeParts node(model_, sealing());
  node.serve(faulty, "node:9001");
  const SessionRef session = node.ready_session(), other = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  client.send_batch(TestBatch(model_, 0, 3, 2, kSeed), 1);
  EXPECT_TRUE(client.drained());
  EXPECT_EQ(faulty.fired(), 1u);
  const auto end = std::chrono::steady_clock::now() + test::kPatience;
  while (!session->ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(session->ended());
  EXPECT_EQ(session->end_reason().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(session->end_reason().text(), HasSubstr("sealed frame 1 of lane latency: it does not open"));
  LaneClient good = node.connect(*other, wire::Lane::kLatency);
  good.greet();
  expect_serves(model_, good, *other);
}

TEST_F(SealedSession, OneEndSealsAndTheOtherDoesNot_RefusedByName) {
  for (const bool node_seals : {false, true}) {
    NodeParts node(model_, node_seals ? sealing() : NodeSettings());
    OpenRequest request = node.open_request();
    request.data_ciphers.clear();
    for (const security::Cipher cipher : security::accepted_ciphers(!node_seals))
      request.data_ciphers.emplace_back(security::name(cipher));
    const auto opened = node.sessions().open(request);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code(), ErrorCode::kRefused);
    EXPECT_THAT(opened.error().text(), HasSubstr(node_seals ? "the coordinator takes plain" : "this node plain"));
    EXPECT_THAT(opened.error().text(), HasSubstr("start both alike"));
    request.data_ciphers = {"rot13"};
    EXPECT_THAT(node.sessions().open(request).error().text(), HasSubstr("nothing that is known here"));
  }
}

TEST_F(SealedSession, ReservationCountsWhatIsSealedAhead) {
  NodeParts plain(model_), sealed(model_, sealing());
  const SessionLimits& without = plain.open()->limits();
  const SessionRef session = sealed.open();
  EXPECT_EQ(session->limits().scratch_bytes() - without.scratch_bytes(),
            2 * (transport::kSealAhead + session->limits().reply_bytes));
}

// A hello over a transport that proves nothing, should one be wired in by mistake.
TEST_F(SealedSession, TransportThatProvesNothing_NobodyGetsIn) {
  transport::LoopbackTransport loopback;
  NodeParts node(model_);
  node.serve_as_it_is(loopback, "node:9001");
  const SessionRef session = node.ready_session();
  auto connection = must(loopback.connect("node:9001", {}, test::kPatience));
  wire::FrameBuilder hello;
  hello.begin({.type = wire::FrameType::kHello, .session = session->id(), .sequence = 1});
  wire::add_hello(hello, {.largest_frame = session->limits().largest_peer_frame});
  must(connection->send(hello.finish()));
  std::string told;
  const auto end = std::chrono::steady_clock::now() + test::kPatience;
  while (told.empty() && std::chrono::steady_clock::now() < end) {
    transport::Event event;
    if (connection->poll({&event, 1}) == 0) {
      (void)transport::wait(*connection, std::chrono::milliseconds(10));
      continue;
    }
    if (event.kind != transport::Event::Kind::kReceived) continue;
    const auto frame = must(wire::decode_frame(event.frame));
    if (frame.header.type == wire::FrameType::kError) told = must(wire::read_error(frame)).text;
    connection->release(event.frame);
  }
  EXPECT_THAT(told, HasSubstr("has not proven that it belongs to a session"));
  EXPECT_FALSE(session->ended());
}

}  // namespace sealed_session_test
}  // namespace terrace::node
