#include "coordinator/legs/slab_sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "coordinator/legs/node_session.h"
#include "tests/unit/coordinator/legs/fake_node.h"
#include "tests/unit/coordinator/legs/transports.h"

namespace terrace::legs {
namespace slab_sender_test {

using namespace std::chrono_literals;
using terrace::test::Bytes;
using test::FakeNode;
using test::mind_manners;
using test::Peer;

const test::TestModel& model() {
  static const test::TestModel made;
  return made;
}

// The bytes as docs/formats.md orders them.
Bytes slab_of(std::uint32_t layer, std::uint16_t expert) {
  const terrace::test::Slab& slab = model().layers[layer].experts[expert];
  Bytes all = slab.gate;
  all.insert(all.end(), slab.up.begin(), slab.up.end());
  all.insert(all.end(), slab.down.begin(), slab.down.end());
  return all;
}

class SlabSenderTest : public test::OverTransports {
 protected:
  using Id = std::pair<std::uint32_t, std::uint32_t>;

  // A node that keeps what comes, gives its credit back, and checks order and sizes.
  FakeNode::Script keep(const wire::Welcome& welcome) {
    return [this, welcome](Peer& peer, const wire::Frame& frame) {
      if (mind_manners(peer, frame, welcome)) return;
      const auto piece = wire::read_slab_piece(frame);
      ASSERT_TRUE(piece.ok()) << piece.error().text();
      const std::uint64_t bytes = wire::kHeaderBytes + frame.header.body_length;
      EXPECT_LE(bytes, std::min(welcome.largest_frame, welcome.credit_bytes));
      EXPECT_EQ(frame.header.layer, piece->piece.layer);
      Bytes& slab = received_[{piece->piece.layer, piece->piece.expert}];
      EXPECT_EQ(piece->piece.offset, slab.size()) << "pieces come in order, without gaps";
      EXPECT_EQ(piece->piece.slab_bytes, model().layers[piece->piece.layer].shape.slab_bytes());
      slab.insert(slab.end(), piece->data.begin(), piece->data.end());
      peer.give_credit(1, bytes);
    };
  }
  void start(FakeNode::Script script) {
    lane_.reset();
    node_ = std::make_unique<FakeNode>(*transport_, std::move(script));
    lane_ = open(0);
  }
  std::unique_ptr<Lane> open(std::uint32_t socket_index) {
    LaneOptions options;
    options.node = "box1:9000";
    options.data_address = node_->address();
    options.lane = wire::Lane::kWeights;
    options.socket_index = socket_index;
    options.session = 5;
    options.largest_frame = 1 << 20;
    auto lane = Lane::open(*transport_, options);
    TERRACE_CHECK(lane.ok(), "a lane opens");
    return std::move(*lane);
  }
  SlabSender sender(std::chrono::milliseconds stall = 60s) {
    return SlabSender({lane_.get()}, model().shapes(), model().lookup(), share_, stall);
  }
  Error failure(std::span<const LayerExperts> wanted, std::chrono::milliseconds stall = 60s) {
    SlabSender sending = sender(stall);
    const Status status = sending.send(wanted, [](std::uint64_t) {});
    return status.ok() ? Error(ErrorCode::kInternal, "send() was ok") : status.error();
  }

  std::vector<LayerExperts> share_{{0, {0, 3, 7}}, {2, {1}}};
  std::map<const Peer*, std::uint32_t> sockets_;  // the node's thread
  std::map<Id, Bytes> received_;                  // the node's thread, then ours when all has come
  std::unique_ptr<FakeNode> node_;
  std::unique_ptr<Lane> lane_;
};

void expect_error(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(name(error.code()), std::string(name(code))) << error.text();
  EXPECT_EQ(error.text().find("box1:9000"), 0u) << error.text();
  EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
}

// Beside streams a share is there no later than it would be alone and the slack.
// It may fall to a tenth while slabs move; the share of the rest is then another one.
TEST(MovementShare, IsMadeAnewWhereTheMeasureIsAnother) {
  constexpr std::uint64_t kMeasure = 1'000'000'000;
  EXPECT_TRUE(is_another_measure(kMeasure, 0)) << "the first one";
  EXPECT_FALSE(is_another_measure(0, 0));
  EXPECT_TRUE(is_another_measure(kMeasure / 10, kMeasure));
  EXPECT_TRUE(is_another_measure(kMeasure / 100 * 94, kMeasure));
  EXPECT_TRUE(is_another_measure(kMeasure / 100 * 106, kMeasure));
  for (const std::uint64_t same : {96, 100, 104}) EXPECT_FALSE(is_another_measure(kMeasure / 100 * same, kMeasure));
}

TEST(MovementShare, AQuarterOfTheLink_AndMoreWhereThatWouldEndTooLate) {
  constexpr std::uint64_t kRate = 1'000'000'000;
  const double slack = std::chrono::duration<double>(kMovementSlack).count();
  for (const std::uint64_t seconds : {0, 1, 2, 10, 100}) {
    const double share = movement_share(seconds * kRate, kRate);
    EXPECT_GE(share, kMovementShare);
    EXPECT_LT(share, 1);
    const double alone = static_cast<double>(seconds);
    EXPECT_LE(alone / share, alone + slack + 1e-9) << seconds;
    EXPECT_TRUE(share == kMovementShare || alone / share > alone + slack - 1e-9) << "more than it needs: " << seconds;
  }
  EXPECT_EQ(movement_share(kRate, 0), 1) << "nothing is known of the link";
}

TEST_P(SlabSenderTest, EveryByteArrivesInOrder_WhateverTheNodeTakesAtOnce) {
  const wire::Welcome welcomes[] = {
      {.largest_frame = 1 << 24, .credit_bytes = 1 << 24, .credit_frames = 64},  // whole parts
      {.largest_frame = 5000, .credit_bytes = 1 << 20, .credit_frames = 64},     // the frame limits
      {.largest_frame = 1 << 20, .credit_bytes = 4500, .credit_frames = 64},     // the window limits
      {.largest_frame = 1 << 20, .credit_bytes = 1 << 20, .credit_frames = 1},   // one frame at a time
  };
  for (const wire::Welcome& welcome : welcomes) {
    received_.clear();
    start(keep(welcome));
    SlabSender sending = sender();
    std::vector<std::uint64_t> told;
    const Status sent = sending.send(share_, [&](std::uint64_t bytes) { told.push_back(bytes); });
    ASSERT_TRUE(sent.ok()) << sent.error().text();
    const std::uint64_t first = model().layers[0].shape.slab_bytes();
    std::sort(told.begin(), told.end());  // slabs take turns
    EXPECT_EQ(told, (std::vector{first, first, first, model().layers[2].shape.slab_bytes()}));
    const std::uint64_t last = lane_->next_header(wire::FrameType::kSlab).sequence - 1;
    const auto deadline = Clock::now() + test::kPatience;
    while (node_->seen().back().header.sequence < last && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    node_.reset();  // joins its thread
    ASSERT_EQ(received_.size(), 4u);
    for (const auto& [id, bytes] : received_)
      EXPECT_EQ(bytes, slab_of(id.first, static_cast<std::uint16_t>(id.second))) << id.first << ", " << id.second;
  }
}

// Each connection has a slab of its own under way: a slab's pieces never change it.
TEST_P(SlabSenderTest, SeveralConnections_EachSlabByOneOfThem) {
  std::map<Id, std::uint32_t> socket_of;
  start([&, kept = keep({.largest_frame = 2000, .credit_bytes = 8000, .credit_frames = 4})](Peer& peer,
                                                                                            const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) sockets_[&peer] = wire::read_hello(frame)->socket_index;
    if (frame.header.type == wire::FrameType::kSlab) {
      const auto piece = wire::read_slab_piece(frame);
      ASSERT_TRUE(piece.ok());
      const auto [at, is_new] = socket_of.try_emplace({piece->piece.layer, piece->piece.expert}, sockets_.at(&peer));
      EXPECT_EQ(at->second, sockets_.at(&peer)) << "a slab came by two connections";
    }
    kept(peer, frame);
  });
  const std::unique_ptr<Lane> second = open(1);
  SlabSender sending({lane_.get(), second.get()}, model().shapes(), model().lookup(), share_, 60s);
  std::uint64_t told = 0;
  const Status sent = sending.send(share_, [&](std::uint64_t bytes) { told += bytes; });
  ASSERT_TRUE(sent.ok()) << sent.error().text();
  const Status taken = sending.wait_for_credit();
  ASSERT_TRUE(taken.ok()) << taken.error().text();
  node_.reset();  // joins its thread
  std::uint64_t bytes = 0;
  std::set<std::uint32_t> used;
  for (const auto& [id, slab] : received_) {
    EXPECT_EQ(slab, slab_of(id.first, static_cast<std::uint16_t>(id.second))) << id.first << ", " << id.second;
    bytes += slab.size();
    used.insert(socket_of.at(id));
  }
  EXPECT_EQ(received_.size(), 4u);
  EXPECT_EQ(told, bytes);
  EXPECT_EQ(used, (std::set<std::uint32_t>{0, 1}));
}

// A node hashes a slab in one thread: with one slab at a time it could use no other.
TEST_P(SlabSenderTest, SeveralSlabsAreUnderWayAtOnce_NoMoreThanFour) {
  std::size_t most = 0, done = 0;
  start([&, kept = keep({.largest_frame = 2000, .credit_bytes = 8000, .credit_frames = 4})](Peer& peer,
                                                                                            const wire::Frame& frame) {
    kept(peer, frame);
    if (frame.header.type != wire::FrameType::kSlab) return;
    const auto piece = wire::read_slab_piece(frame);
    ASSERT_TRUE(piece.ok());
    most = std::max(most, received_.size() - done);
    done += piece->piece.offset + piece->data.size() == piece->piece.slab_bytes;
  });
  share_ = {{0, {0, 1, 2, 3, 4, 7}}};
  SlabSender sending = sender();
  ASSERT_TRUE(sending.send(share_, [](std::uint64_t) {}).ok());
  ASSERT_TRUE(sending.wait_for_credit().ok());
  node_.reset();  // joins its thread
  EXPECT_EQ(received_.size(), 6u);
  EXPECT_EQ(most, 4u);
}

TEST_P(SlabSenderTest, WantedInTwoMessages_AreBothSent) {
  start(keep(test::ample_welcome()));
  SlabSender sending = sender();
  ASSERT_TRUE(sending.send(std::vector<LayerExperts>{{2, {1}}, {0, {7}}}, [](std::uint64_t) {}).ok());
  ASSERT_TRUE(sending.send(std::vector<LayerExperts>{{0, {3}}}, [](std::uint64_t) {}).ok());
}

// What a node wants is hostile until checked: these would read beyond the model.
TEST_P(SlabSenderTest, SlabsThatAreNotInTheShare_Corrupt) {
  start(keep(test::ample_welcome()));
  expect_error(failure(std::vector<LayerExperts>{{0, {1}}}), ErrorCode::kCorrupt, "expert 1 of layer 0");
  expect_error(failure(std::vector<LayerExperts>{{0, {65535}}}), ErrorCode::kCorrupt, "expert 65535");
  expect_error(failure(std::vector<LayerExperts>{{4'000'000'000, {0}}}), ErrorCode::kCorrupt, "layer 4000000000");
  expect_error(failure(std::vector<LayerExperts>{{0, {3, 3}}}), ErrorCode::kCorrupt, "wanted before");
  SlabSender sending = sender();
  ASSERT_TRUE(sending.send(share_, [](std::uint64_t) {}).ok());
  EXPECT_FALSE(sending.send(std::vector<LayerExperts>{{2, {1}}}, [](std::uint64_t) {}).ok());
}

TEST_P(SlabSenderTest, FramesTooSmallForAUsefulPiece_Refused) {
  start(keep({.largest_frame = 600, .credit_bytes = 1 << 20, .credit_frames = 4}));
  expect_error(failure(share_), ErrorCode::kRefused, "at most 600 bytes");
}

TEST_P(SlabSenderTest, ErrorOfTheNode_EndsItWithTheNodesReason) {
  for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{2}}) {
    start([sequence](Peer& peer, const wire::Frame& frame) {
      const wire::Welcome welcome{.largest_frame = 1000, .credit_bytes = 1000, .credit_frames = 1};
      if (!mind_manners(peer, frame, welcome)) peer.send_error(sequence, ErrorCode::kCorrupt, "slab has a wrong hash");
    });
    expect_error(failure(share_), ErrorCode::kCorrupt, "slab has a wrong hash");
    expect_error(failure(share_), ErrorCode::kCorrupt, "slab has a wrong hash");
  }
}

TEST_P(SlabSenderTest, NodeDies_PeerGone) {
  start([](Peer& peer, const wire::Frame& frame) {
    const wire::Welcome welcome{.largest_frame = 1000, .credit_bytes = 1000, .credit_frames = 1};
    if (!mind_manners(peer, frame, welcome)) peer.hang_up();
  });
  expect_error(failure(share_), ErrorCode::kPeerGone, "weights lane");
}

TEST_P(SlabSenderTest, AliveWithoutCredit_DeadlineAndTheLaneIsClosed) {
  start([](Peer& peer, const wire::Frame& frame) {
    mind_manners(peer, frame, {.largest_frame = 1000, .credit_bytes = 1000, .credit_frames = 1});
  });
  expect_error(failure(share_, 150ms), ErrorCode::kDeadline, "150ms");
}

TEST_P(SlabSenderTest, StoppedWhileTheNodeTakesNothing_Ends) {
  start([](Peer& peer, const wire::Frame& frame) {
    mind_manners(peer, frame, {.largest_frame = 1000, .credit_bytes = 1000, .credit_frames = 1});
  });
  std::stop_source stop;
  SlabSender sending({lane_.get()}, model().shapes(), model().lookup(), share_, test::kPatience, stop.get_token());
  std::thread stopper([&] {
    EXPECT_TRUE(node_->wait_for(wire::FrameType::kSlab, 1));
    stop.request_stop();
  });
  const Status status = sending.send(share_, [](std::uint64_t) {});
  stopper.join();
  ASSERT_FALSE(status.ok());
  expect_error(status.error(), ErrorCode::kPeerGone, "given up by this side");
}

TEST_P(SlabSenderTest, FrameThatIsNoAnswer_Corrupt) {
  start([](Peer& peer, const wire::Frame& frame) {
    const wire::Welcome welcome{.largest_frame = 1000, .credit_bytes = 1000, .credit_frames = 1};
    if (!mind_manners(peer, frame, welcome))
      test::Reply{.header = {.type = wire::FrameType::kReply, .sequence = 2}, .data = {std::byte{0}}}.send(peer);
  });
  expect_error(failure(share_), ErrorCode::kCorrupt, "on the weights lane");
}

// Pieces that are still queued when the sender ends would be read from freed memory: a sanitizer sees it.
TEST_P(SlabSenderTest, EndsWithPiecesInFlight_TheLaneReadsThemNoMore) {
  start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  std::vector<kernels::ExpertShape> shapes{{TensorType::kF32, TensorType::kF32, TensorType::kF32, 512, 512}};
  const std::vector<LayerExperts> share{{0, {0, 1, 2, 3, 4, 5, 6, 7}}};
  node_->run([&](auto&) {  // the node reads nothing meanwhile
    auto big = std::make_unique<std::vector<std::byte>>(std::size_t{1} << 20);
    const auto lookup = [&](std::uint32_t, std::uint16_t) -> kernels::SlabView {
      return {big->data(), big->data(), big->data()};
    };
    {
      SlabSender sending({lane_.get()}, shapes, lookup, share, 50ms);
      const Status status = sending.send(share, [](std::uint64_t) {});
      if (!status.ok()) {
        EXPECT_EQ(status.error().code(), ErrorCode::kDeadline) << status.error().text();
      }
    }
  });
  (void)node_->wait_for(wire::FrameType::kSlab, 2);  // there is room in the sockets again
  lane_->close();
}

TERRACE_OVER_TRANSPORTS(SlabSenderTest);

}  // namespace slab_sender_test
}  // namespace terrace::legs
