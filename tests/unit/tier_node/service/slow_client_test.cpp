// Clients of the data port that are mute, or send a byte now and then; and such that go in the middle of a frame. None
// keeps anyone else from being served, and each is gone once its time is over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/tier_node/service/slow_client.h"

namespace terrace::node {
namespace slow_client_test {

using namespace test;
using ::testing::HasSubstr;

TEST_F(SlowClient, HandshakeOrHelloByteByByte_ClosedAtTheHelloLimitHoweverManyBytesCame) {
  NodeSettings settings = patient();
  settings.data.hello_timeout = 400ms;
  start(settings);
  for (const bool proven : {false, true}) {
    RawSocket socket;
    ASSERT_TRUE(socket.connect(data_port_));
    if (proven) prove(socket, *other_, wire::Lane::kBulk);
    const std::vector<std::byte> bytes =
        proven ? hello_bytes(*other_, wire::Lane::kBulk) : proof_bytes(*other_, wire::Lane::kBulk);
    const Dripper drip(socket, bytes);  // whole after about a second
    expect_others_are_served();
    EXPECT_TRUE(socket.closed_within(kHang));
    EXPECT_LT(drip.sent(), bytes.size()) << "it had its time to the end";
  }
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
    if (i % 2 == 0) drippers.emplace_back(sockets[i], proof_bytes(*other_, wire::Lane::kBulk));
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
  prove(socket, *slow, wire::Lane::kLatency);
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
  const std::vector<std::byte> proof = proof_bytes(*session, wire::Lane::kLatency);
  const std::vector<std::byte> hello = hello_bytes(*session, wire::Lane::kLatency);
  const std::vector<std::byte> batch = batch_bytes(model_, *session);
  for (std::size_t n = 1; n < proof.size(); n += 9) {
    RawSocket socket;
    ASSERT_TRUE(socket.connect(data_port_));
    socket.write(std::span(proof).first(n));
  }
  for (std::size_t n = 1; n < hello.size(); n += 9) {
    RawSocket socket;
    ASSERT_TRUE(socket.connect(data_port_));
    prove(socket, *session, wire::Lane::kLatency);
    socket.write(std::span(hello).first(n));
  }
  for (std::size_t n = 1; n < batch.size(); n += 61) {
    RawSocket socket;
    ASSERT_TRUE(socket.connect(data_port_));
    prove(socket, *session, wire::Lane::kLatency);
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

}  // namespace slow_client_test
}  // namespace terrace::node
