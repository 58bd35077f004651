#include "coordinator/legs/lane.h"

#include <gtest/gtest.h>

#include "tests/unit/coordinator/legs/fake_node.h"
#include "tests/unit/coordinator/legs/transports.h"

namespace terrace::legs {
namespace lane_test {

using namespace std::chrono_literals;
using test::FakeNode;
using test::mind_manners;
using test::Peer;

constexpr std::uint64_t kSession = 0x1234;

// A node called box1:9000, which is where the fake one listens.
class LaneTest : public test::OverTransports {
 protected:
  FakeNode& start(FakeNode::Script script) {
    node_ = std::make_unique<FakeNode>(*transport_, std::move(script));
    options_.data_address = node_->address();
    return *node_;
  }
  Result<std::unique_ptr<Lane>> open() { return Lane::open(*transport_, options_); }
  // Polls until the lane fails.
  Error failure_of(Lane& lane) {
    const auto deadline = Clock::now() + test::kPatience;
    lane.expect_life();
    while (Clock::now() < deadline) {
      if (const Status polled = lane.poll(handlers_); !polled.ok()) return polled.error();
      if (const Status waited = lane.wait(10ms); !waited.ok()) return waited.error();
    }
    return Error(ErrorCode::kInternal, "the lane did not fail");
  }
  // The failure of a lane whose node misbehaves after Welcome.
  Error failure_after_welcome(const std::function<void(Peer&)>& misbehave) {
    FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
    auto lane = open();
    TERRACE_CHECK(lane.ok(), "the lane opens");
    node.run([&](auto& peers) { misbehave(*peers.at(0)); });
    const Error error = failure_of(**lane);
    const Status again = (*lane)->poll(handlers_);
    EXPECT_FALSE(again.ok()) << "an error is final";
    if (!again.ok()) {
      EXPECT_EQ(again.error().text(), error.text());
    }
    return error;
  }

  LaneOptions options_{.node = "box1:9000",
                       .data_address = "",
                       .lane = wire::Lane::kBulk,
                       .session = kSession,
                       .key = {},
                       .largest_frame = 1 << 20,
                       .receive_window = 1 << 21};
  std::vector<wire::FrameType> frames_;
  std::function<Result<bool>(const wire::Frame&, std::span<const std::byte>)> on_frame_ =
      [this](const wire::Frame& frame, std::span<const std::byte>) -> Result<bool> {
    frames_.push_back(frame.header.type);
    return false;
  };
  std::function<void(transport::SendTicket)> on_sent_ = [](transport::SendTicket) {};
  Lane::Handlers handlers_{on_frame_, on_sent_};
  std::unique_ptr<FakeNode> node_;
};

void expect_error(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(name(error.code()), std::string(name(code))) << error.text();
  EXPECT_NE(error.text().find("box1:9000"), std::string::npos) << error.text();
  EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
}

// ---- greeting -------------------------------------------------------------------------------------------------------

TEST_P(LaneTest, Greeting_CarriesTokenAndTakesTheFirstGrant) {
  wire::Hello hello;
  FakeNode& node = start([&](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) hello = *wire::read_hello(frame);
    mind_manners(peer, frame, {.largest_frame = 5000, .credit_bytes = 4000, .credit_frames = 2});
  });
  const auto lane = open();
  ASSERT_TRUE(lane.ok()) << lane.error().text();
  EXPECT_EQ((*lane)->largest_frame(), 5000u);
  EXPECT_EQ((*lane)->window_bytes(), 4000u);
  EXPECT_TRUE((*lane)->has_credit(4000));
  EXPECT_FALSE((*lane)->has_credit(4001));
  EXPECT_EQ(hello.largest_frame, options_.largest_frame);
  const wire::FrameHeader seen = node.seen().at(0).header;
  EXPECT_EQ(seen.session, kSession);
  EXPECT_EQ(seen.lane, wire::Lane::kBulk);
  EXPECT_EQ(seen.sequence, 1u);
  EXPECT_EQ((*lane)->next_header(wire::FrameType::kBatch).sequence, 2u);
  EXPECT_EQ((*lane)->next_header(wire::FrameType::kBatch).sequence, 2u) << "an unsent frame uses no sequence";
}

TEST_P(LaneTest, NothingListens_PeerGone) {
  options_.data_address = "127.0.0.1:1";
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kPeerGone, "data port");
}

TEST_P(LaneTest, MuteNode_Deadline) {
  start([](Peer&, const wire::Frame&) {});
  options_.connect_timeout = 150ms;
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kDeadline, "150ms");
}

TEST_P(LaneTest, StoppedWhileTheNodeIsMute_Ends) {
  std::stop_source stop;
  start([&](Peer&, const wire::Frame&) { stop.request_stop(); });
  options_.stop = stop.get_token();
  options_.connect_timeout = test::kPatience;
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kPeerGone, "given up by this side");
}

TEST_P(LaneTest, PingsInsteadOfWelcome_Deadline) {
  start([](Peer& peer, const wire::Frame&) { peer.send(wire::FrameType::kPing, 9); });  // again after each pong
  options_.connect_timeout = 150ms;
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kDeadline, "Hello");
}

TEST_P(LaneTest, RefusedHello_GivesTheNodesReason) {
  start([](Peer& peer, const wire::Frame&) { peer.send_error(0, ErrorCode::kRefused, "no such session"); });
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kRefused, "no such session");
}

TEST_P(LaneTest, HangsUpInsteadOfWelcome_PeerGone) {
  start([](Peer& peer, const wire::Frame&) { peer.hang_up(); });
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kPeerGone, "bulk lane");
}

TEST_P(LaneTest, ReplyInsteadOfWelcome_Corrupt) {
  start([](Peer& peer, const wire::Frame&) {
    test::Reply{.header = {.type = wire::FrameType::kReply, .sequence = 2}, .data = {std::byte{0}}}.send(peer);
  });
  const auto lane = open();
  ASSERT_FALSE(lane.ok());
  expect_error(lane.error(), ErrorCode::kCorrupt, "Welcome was due");
}

TEST_P(LaneTest, SecondWelcome_GoesToTheLayerAbove) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  node.run([](auto& peers) {
    peers.at(0)->send({.type = wire::FrameType::kWelcome},
                      [](wire::FrameBuilder& builder) { wire::add_welcome(builder, test::ample_welcome()); });
  });
  const auto deadline = Clock::now() + test::kPatience;
  while (frames_.empty() && Clock::now() < deadline) {
    ASSERT_TRUE((*lane)->poll(handlers_).ok());
    ASSERT_TRUE((*lane)->wait(10ms).ok());
  }
  EXPECT_EQ(frames_, std::vector{wire::FrameType::kWelcome});
}

TEST_P(LaneTest, WelcomeThatGrantsNothing_Corrupt) {
  const wire::Welcome bad[] = {
      {.largest_frame = 100, .credit_bytes = 0, .credit_frames = 1},
      {.largest_frame = 100, .credit_bytes = 100, .credit_frames = 0},
      {.largest_frame = 0, .credit_bytes = 100, .credit_frames = 1},
      {.largest_frame = 100, .credit_bytes = ~std::uint64_t{0}, .credit_frames = 1},
  };
  for (const wire::Welcome& welcome : bad) {
    start([&](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame, welcome); });
    const auto lane = open();
    ASSERT_FALSE(lane.ok());
    expect_error(lane.error(), ErrorCode::kCorrupt, "");
  }
}

// ---- hostile frames -------------------------------------------------------------------------------------------------

TEST_P(LaneTest, WrongSessionOrLane_Corrupt) {
  expect_error(failure_after_welcome([](Peer& peer) {
                 peer.set_last({.lane = wire::Lane::kBulk, .session = kSession + 1});
                 peer.send(wire::FrameType::kPing, 1);
               }),
               ErrorCode::kCorrupt, "0000000000001235");
  expect_error(failure_after_welcome([](Peer& peer) {
                 peer.set_last({.lane = wire::Lane::kLatency, .session = kSession});
                 peer.send(wire::FrameType::kPing, 1);
               }),
               ErrorCode::kCorrupt, "latency lane");
}

TEST_P(LaneTest, Garbage_Corrupt) {
  expect_error(failure_after_welcome([](Peer& peer) { peer.send_raw(std::vector(200, std::byte{0x5a})); }),
               ErrorCode::kCorrupt, "magic");
}

TEST_P(LaneTest, DamagedFrame_CorruptAndTheNodeIsTold) {
  const Error error = failure_after_welcome([](Peer& peer) {
    wire::FrameBuilder builder;
    builder.begin({.type = wire::FrameType::kPing, .lane = wire::Lane::kBulk, .session = kSession, .sequence = 1});
    const auto frame = builder.finish()[0];
    std::vector<std::byte> bytes(frame.begin(), frame.end());
    bytes[24] ^= std::byte{1};
    peer.send_raw(bytes);
  });
  expect_error(error, ErrorCode::kCorrupt, "checksum");
  EXPECT_TRUE(node_->wait_for(wire::FrameType::kError, 1));
}

TEST_P(LaneTest, OversizedFrame_Corrupt) {
  expect_error(failure_after_welcome([this](Peer& peer) {
                 test::Reply{.header = {.type = wire::FrameType::kReply, .sequence = 2},
                             .data = std::vector<std::byte>(options_.largest_frame + 16)}
                     .send(peer);
               }),
               ErrorCode::kCorrupt, std::to_string(options_.largest_frame));
}

TEST_P(LaneTest, FrameThatNodesDoNotSend_Corrupt) {
  expect_error(failure_after_welcome([](Peer& peer) { peer.send(wire::FrameType::kCancel, 1); }), ErrorCode::kCorrupt,
               "never sends");
}

TEST_P(LaneTest, ErrorOfTheConnection_EndsItWithTheNodesCode) {
  expect_error(failure_after_welcome([](Peer& peer) { peer.send_error(0, ErrorCode::kRefused, "no credit left"); }),
               ErrorCode::kRefused, "no credit left");
  // Whatever the code, the node is named.
  expect_error(failure_after_welcome([](Peer& peer) { peer.send_error(0, ErrorCode::kPeerGone, "shutting down"); }),
               ErrorCode::kPeerGone, "shutting down");
}

TEST_P(LaneTest, Close_PeerGone) {
  expect_error(failure_after_welcome([](Peer& peer) { peer.send(wire::FrameType::kClose); }), ErrorCode::kPeerGone,
               "goodbye");
}

TEST_P(LaneTest, LostLink_PeerGone) {
  const Error lost = failure_after_welcome([](Peer& peer) { peer.hang_up(); });
  expect_error(lost, ErrorCode::kPeerGone,
               "box1:9000: the node is lost (bulk lane): its data port " + node_->address());
}

TEST_P(LaneTest, CreditOverflow_Corrupt) {
  expect_error(failure_after_welcome([](Peer& peer) { peer.give_credit(1, ~std::uint64_t{0}); }), ErrorCode::kCorrupt,
               "credit");
  expect_error(failure_after_welcome([](Peer& peer) {
                 for (int i = 0; i < 3; ++i) peer.give_credit(1, std::uint64_t{1} << 39);  // each alone is in order
               }),
               ErrorCode::kCorrupt, "credit");
  expect_error(failure_after_welcome([](Peer& peer) {
                 for (int i = 0; i < 2; ++i) peer.give_credit(~std::uint32_t{0}, 0);
               }),
               ErrorCode::kCorrupt, "credit");
}

TEST_P(LaneTest, FramesWithoutEnd_DoNotKeepPollFromReturning) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  node.run([](auto& peers) {
    for (int i = 0; i < 200; ++i) peers.at(0)->send(wire::FrameType::kPong, 1);
  });
  node.run([](auto& peers) {
    std::array<transport::Event, 256> events;
    (void)peers.at(0)->connection().poll(events);
    for (int i = 0; i < 150; ++i) peers.at(0)->send(wire::FrameType::kPong, 1);
  });
  const std::uint64_t before = (*lane)->stats().frames_received;
  ASSERT_TRUE((*lane)->poll(handlers_).ok());
  EXPECT_LE((*lane)->stats().frames_received - before, 256u);
  const auto deadline = Clock::now() + test::kPatience;
  while ((*lane)->stats().frames_received - before < 350 && Clock::now() < deadline)
    ASSERT_TRUE((*lane)->poll(handlers_).ok());
  EXPECT_EQ((*lane)->stats().frames_received - before, 350u);
}

// ---- signs of life --------------------------------------------------------------------------------------------------

TEST_P(LaneTest, Ping_IsAnsweredWithItsSequence) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  node.run([](auto& peers) { peers.at(0)->send(wire::FrameType::kPing, 4711); });
  const auto deadline = Clock::now() + test::kPatience;
  while (node.count(wire::FrameType::kPong) == 0 && Clock::now() < deadline) {
    ASSERT_TRUE((*lane)->poll(handlers_).ok());
    ASSERT_TRUE((*lane)->wait(10ms).ok());
  }
  EXPECT_EQ(node.seen().back().header.sequence, 4711u);
  EXPECT_EQ((*lane)->next_header(wire::FrameType::kBatch).sequence, 2u) << "a pong has its ping's sequence";
}

TEST_P(LaneTest, NoPong_PeerGone) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) mind_manners(peer, frame);
  });
  options_.liveness_timeout = 120ms;
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  const auto start = Clock::now();
  expect_error(failure_of(**lane), ErrorCode::kPeerGone, "no sign of life for 120ms");
  EXPECT_GE(Clock::now() - start, 120ms);
  EXPECT_EQ(node.count(wire::FrameType::kPing), 1u) << "one ping is open at a time";
}

TEST_P(LaneTest, PongsAlone_KeepTheLane) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  options_.liveness_timeout = 2s;  // a ping every 500 ms
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  (*lane)->expect_life();
  const auto deadline = Clock::now() + test::kPatience;
  while (node.count(wire::FrameType::kPing) < 3 && Clock::now() < deadline) {
    ASSERT_TRUE((*lane)->poll(handlers_).ok());
    ASSERT_TRUE((*lane)->wait(10ms).ok());
  }
  EXPECT_EQ(node.count(wire::FrameType::kPing), 3u);
}

// Bytes of a frame that never ends are no frame.
TEST_P(LaneTest, TrickledBytes_AreNoSignOfLife) {
  if (GetParam() == std::string("loopback")) GTEST_SKIP() << "loopback carries whole frames only";
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) mind_manners(peer, frame);
  });
  options_.liveness_timeout = 200ms;
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kPing, .lane = wire::Lane::kBulk, .session = kSession, .sequence = 1});
  const auto frame = builder.finish()[0];
  Status status;
  const auto deadline = Clock::now() + test::kPatience;
  for (std::size_t i = 0; status.ok() && Clock::now() < deadline; ++i) {
    if (i < 60) node.run([&](auto& peers) { peers.at(0)->send_raw({frame[i]}); });
    status = (*lane)->poll(handlers_);
    if (status.ok()) status = (*lane)->wait(20ms);
  }
  ASSERT_FALSE(status.ok());
  expect_error(status.error(), ErrorCode::kPeerGone, "no sign of life");
}

// A node that stops in the middle of a reply has nothing to answer pings with.
TEST_P(LaneTest, StopsInTheMiddleOfAReply_PeerGoneAndTold) {
  if (GetParam() == std::string("loopback")) GTEST_SKIP() << "loopback carries whole frames only";
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kReply, .lane = wire::Lane::kBulk, .session = kSession, .sequence = 2});
  const std::vector<std::byte> sums(1000);
  wire::add_reply(builder, {0, 1, 1, 5}, wire::ReplyForm::kSum, sums, {});
  std::vector<std::byte> reply;
  for (const auto part : builder.finish()) reply.insert(reply.end(), part.begin(), part.end());
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, reply.size() - 1}) {
    FakeNode& node = start([](Peer& peer, const wire::Frame& frame) {
      if (frame.header.type == wire::FrameType::kHello) mind_manners(peer, frame);
    });
    options_.liveness_timeout = 200ms;
    const auto lane = open();
    ASSERT_TRUE(lane.ok());
    node.run([&](auto& peers) {
      peers.at(0)->send_raw({reply.begin(), reply.begin() + static_cast<std::ptrdiff_t>(bytes)});
    });
    expect_error(failure_of(**lane), ErrorCode::kPeerGone,
                 "no sign of life for 200ms, " + std::to_string(bytes) +
                     (bytes < wire::kHeaderBytes ? "" : " of " + std::to_string(reply.size())) +
                     " bytes of a frame have come");
  }
}

TEST_P(LaneTest, BusyForTheWholeLane_IsASignOfLife) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  node.run([](auto& peers) {
    peers.at(0)->send({.type = wire::FrameType::kBusy},
                      [](wire::FrameBuilder& builder) { wire::add_busy(builder, {}); });
    peers.at(0)->send({.type = wire::FrameType::kBusy, .sequence = 9},
                      [](wire::FrameBuilder& builder) { wire::add_busy(builder, {}); });
  });
  const auto deadline = Clock::now() + test::kPatience;
  while (frames_.empty() && Clock::now() < deadline) {
    ASSERT_TRUE((*lane)->poll(handlers_).ok());
    ASSERT_TRUE((*lane)->wait(10ms).ok());
  }
  EXPECT_EQ(frames_, std::vector{wire::FrameType::kBusy}) << "only the one that names a batch";
}

TEST_P(LaneTest, Goodbye_IsSaid) {
  FakeNode& node = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const auto lane = open();
  ASSERT_TRUE(lane.ok());
  (*lane)->close();
  EXPECT_TRUE(node.wait_for(wire::FrameType::kClose, 1));
  EXPECT_FALSE((*lane)->poll(handlers_).ok());
}

TERRACE_OVER_TRANSPORTS(LaneTest);

}  // namespace lane_test
}  // namespace terrace::legs
