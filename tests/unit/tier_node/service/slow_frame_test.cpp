// Clients that keep their session by heartbeats and send a frame slowly, or only its beginning; and such that may: slow
// and steady, or idle between frames.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/tier_node/service/slow_client.h"

namespace terrace::node {
namespace slow_frame_test {

using namespace test;
using ::testing::HasSubstr;

// Whoever stops in the middle of a frame is closed soon. What a machine under load does to honest clients must not be:
// their frames come whole, or far ahead of the least rate.
NodeSettings impatient(std::uint64_t least_rate) {
  NodeSettings settings = patient();
  settings.data.frame_time = {200ms, least_rate};
  return settings;
}

class SlowFrame : public SlowClient {
 protected:
  std::unique_ptr<LaneClient> greeted(const Session& session, wire::Lane lane) {
    std::unique_ptr<LaneClient> client(new LaneClient(node_->connect(session, lane)));
    client->greet();
    return client;
  }
};

TEST_F(SlowFrame, ByteByByteWithHeartbeats_EndsThatSessionByNameWhileOthersAreServed) {
  NodeSettings settings = impatient(1'000'000);
  settings.sessions.lease = 10s;
  start(settings);
  const SessionRef slow = node_->ready_session();
  const auto bulk = greeted(*slow, wire::Lane::kBulk);
  RawSocket socket;
  ASSERT_TRUE(socket.connect(data_port_));
  prove(socket, *slow, wire::Lane::kLatency);
  socket.write(hello_bytes(*slow, wire::Lane::kLatency));
  ASSERT_TRUE(socket.answered_within(kHang));
  const std::vector<std::byte> batch = batch_bytes(model_, *slow, 512);
  const Dripper drip(socket, batch, [&] { (void)node_->sessions().heartbeat(slow->id()); });
  const auto end = std::chrono::steady_clock::now() + kHang;
  while (!slow->ended() && std::chrono::steady_clock::now() < end) expect_others_are_served();
  ASSERT_TRUE(slow->ended()) << drip.sent() << " of " << batch.size() << " bytes were sent";
  EXPECT_TRUE(socket.closed_within(kHang));
  EXPECT_EQ(slow->end_reason().code(), ErrorCode::kDeadline);
  EXPECT_THAT(slow->end_reason().text(), HasSubstr("lane latency: "));
  EXPECT_THAT(slow->end_reason().text(), HasSubstr("of a frame came in"));
  EXPECT_THAT(slow->end_reason().text(), HasSubstr("200ms are allowed, and a second more for each 1000000 bytes"));
  // The coordinator is told on every lane that it can still read.
  const wire::ErrorMessage told = error_of(bulk->receive_answer());
  EXPECT_EQ(told.code, ErrorCode::kDeadline);
  EXPECT_EQ(told.text, slow->end_reason().text());
  EXPECT_TRUE(bulk->drained());
  expect_others_are_served();
  expect_nothing_left();
}

TEST_F(SlowFrame, StopsInTheMiddle_AtAnyPlace_IsToldAndClosed) {
  start(impatient(1'000'000));
  const std::uint64_t whole = batch_bytes(model_, *other_, 4).size();
  struct Case {
    std::uint64_t bytes;
    std::string told;
  };
  // In the header, at its end, in the rows, before the last byte.
  const Case cases[] = {{1, "1 bytes of a frame came"},
                        {63, "63 bytes of a frame came"},
                        {64, fmt::format("64 of {} bytes of a frame came", whole)},
                        {whole / 2, fmt::format("{} of {} bytes of a frame came", whole / 2, whole)},
                        {whole - 1, fmt::format("{} of {} bytes of a frame came", whole - 1, whole)}};
  struct Stopped {
    SessionRef session;
    std::unique_ptr<LaneClient> client;
  };
  std::deque<Stopped> stopped;
  for (const Case& at : cases) {
    const SessionRef session = node_->ready_session();
    stopped.push_back({session, greeted(*session, wire::Lane::kLatency)});
    const std::vector<std::byte> batch = batch_bytes(model_, *session, 4);
    stopped.back().client->send_bytes(std::span(batch).first(at.bytes));
  }
  expect_others_are_served();
  for (std::size_t i = 0; i < stopped.size(); ++i) {
    const wire::ErrorMessage told = error_of(stopped[i].client->receive_answer());
    EXPECT_EQ(told.code, ErrorCode::kDeadline) << told.text;
    EXPECT_THAT(told.text, HasSubstr(cases[i].told));
    EXPECT_TRUE(stopped[i].client->drained());
    EXPECT_TRUE(stopped[i].session->ended());
  }
  expect_others_are_served();
  expect_nothing_left();
}

// A third of it at once buys time for every stall of this machine; what follows takes five times the base.
TEST_F(SlowFrame, LargeFrameSlowlyAndSteadily_IsServed) {
  start(impatient(1'000));
  const SessionRef session = node_->ready_session();
  const auto client = greeted(*session, wire::Lane::kLatency);
  const std::vector<std::byte> bytes = batch_bytes(model_, *session, 512);
  std::span<const std::byte> rest = bytes;
  const auto send = [&](std::size_t n) {
    client->send_bytes(rest.first(n));
    rest = rest.subspan(n);
  };
  send(bytes.size() / 3);
  const std::size_t piece = rest.size() / 100;
  while (rest.size() > piece) {
    std::this_thread::sleep_for(10ms);
    send(piece);
  }
  send(rest.size());
  const auto reply = client->receive_answer();
  ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
  EXPECT_FALSE(session->ended());
  session->end(Error(ErrorCode::kPeerGone, "the case is over"));
  EXPECT_TRUE(client->drained());
  expect_nothing_left();
}

TEST_F(SlowFrame, IdleBetweenFramesForLonger_IsServed) {
  start(impatient(1'000'000));
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(300ms);  // longer than the base
    expect_others_are_served();
  }
  EXPECT_FALSE(other_->ended());
  expect_nothing_left();
}

}  // namespace slow_frame_test
}  // namespace terrace::node
