// Answers of a node taken range by range, and batches abandoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tests/unit/coordinator/legs/node_leg_testing.h"

namespace terrace::legs {
namespace node_leg_ranges_test {

using namespace node_leg_testing;

class RangesOfANode : public NodeLegTest {
 protected:
  bool until(NodeLeg& leg, const std::function<bool()>& condition) {
    const auto deadline = Clock::now() + test::kPatience;
    for (leg.progress(); !condition(); leg.progress()) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
};

TEST_P(RangesOfANode, TakenOneByOne_EachWholeOrNotAtAll) {
  std::vector<Reply> replies;
  NodeLeg& leg = start([&](Peer& peer, const wire::Frame& frame) {
    if (!mind_manners(peer, frame)) replies = brain_.replies(frame);
  });
  const TestBatch prompt = batch(1, 64, 16, 8, Priority::kPrompt);
  const Ticket ticket = *leg.submit(prompt.batch);
  ASSERT_TRUE(node_->wait_for(wire::FrameType::kBatch, 1));
  Sums sums(64);
  for (const std::size_t range : {2u, 0u, 3u, 1u}) {
    EXPECT_EQ(leg.range_state(ticket, range), RangeState::kOpen);
    node_->run([&](auto& peers) { replies.at(range).send(*peers.at(1)); });
    ASSERT_TRUE(until(leg, [&] { return leg.range_state(ticket, range) == RangeState::kReady; }));
    const Sums before = sums;
    ASSERT_TRUE(leg.take(ticket, range, sums.view(), sums.failed).ok());
    EXPECT_EQ(leg.range_state(ticket, range), RangeState::kClosed);
    for (std::size_t row = 0; row < 64; ++row) {
      const bool in_range = row / 16 == range;
      EXPECT_EQ(
          std::equal(&before.values[row * kWidth], &before.values[row * kWidth] + kWidth, &sums.values[row * kWidth]),
          !in_range)
          << row;
    }
  }
  EXPECT_TRUE(leg.ticket_status(ticket).ok());
  leg.abandon(ticket);
  EXPECT_EQ(sums, local_sums(model(), prompt.batch));
}

// One bad range of four: none of its rows is added, and the good ones that came before it may be.
TEST_P(RangesOfANode, CorruptSums_NothingOfTheRangeIsAdded) {
  std::vector<Reply> replies;
  NodeLeg& leg = start([&](Peer& peer, const wire::Frame& frame) {
    if (!mind_manners(peer, frame)) replies = brain_.replies(frame);
  });
  const TestBatch prompt = batch(1, 32, 8, 8, Priority::kPrompt);
  const Ticket ticket = *leg.submit(prompt.batch);
  ASSERT_TRUE(node_->wait_for(wire::FrameType::kBatch, 1));
  node_->run([&](auto& peers) {
    // The last of its rows says that it has one byte a value more than it needs: all widths fit the length.
    const std::size_t row = kWidth / 64;
    std::vector<std::byte>& data = replies.at(1).data;
    data.assign((replies[1].info.n_rows - 1) * row, std::byte{0});
    for (std::size_t block = 0; block < row; ++block) {
      data.push_back(std::byte{1});
      data.insert(data.end(), 64, std::byte{0});
    }
    replies.at(0).send(*peers.at(1));
    replies.at(1).send(*peers.at(1));
  });
  ASSERT_TRUE(until(leg, [&] { return leg.state() == LegState::kWrong; }));
  EXPECT_EQ(leg.range_state(ticket, 0), RangeState::kReady);
  EXPECT_EQ(leg.range_state(ticket, 1), RangeState::kOpen);
  expect_error(leg.ticket_status(ticket).error(), ErrorCode::kCorrupt, "less would do");
  ASSERT_NE(leg.why_out(), nullptr);
  leg.abandon(ticket);
  EXPECT_EQ(leg.counters().wrongs, 1u);
}

TEST_P(RangesOfANode, Abandoned_LateAnswersAreDroppedAndClearTheSuspicion) {
  std::vector<Reply> late;
  NodeLeg& leg = start([&](Peer& peer, const wire::Frame& frame) {
    if (mind_manners(peer, frame)) return;
    if (late.empty())
      late = brain_.replies(frame);
    else
      for (const Reply& reply : brain_.replies(frame)) reply.send(peer);
  });
  TestBatch first = batch(1, 5);
  first.batch.rows_owner = std::make_shared<int>(0);  // they live to the test's end
  const TestBatch second = batch(0, 4);
  const Ticket ticket = *leg.submit(first.batch);
  ASSERT_TRUE(node_->wait_for(wire::FrameType::kBatch, 1));
  leg.set_suspect(ticket);
  EXPECT_EQ(leg.state(), LegState::kSuspect);
  leg.abandon(ticket);
  EXPECT_EQ(leg.state(), LegState::kSuspect);
  node_->run([&](auto& peers) {
    for (const Reply& reply : late) reply.send(*peers.at(0));
  });
  ASSERT_TRUE(until(leg, [&] { return leg.state() == LegState::kOk; }));
  EXPECT_EQ(leg.counters().late, 1u);
  expect_exact(leg, second);
}

// Nothing of it reached the node, which so cannot clear itself by an answer: what held the batch up was the lane.
TEST_P(RangesOfANode, AbandonedBeforeItWasSent_IsNoSuspicionThatStays) {
  constexpr std::uint64_t kWindow = 1 << 20;
  NodeLeg& leg = start(bent(
      [](std::vector<Reply>& replies) { replies.back().header.credit_frames = replies.back().header.credit_bytes = 0; },
      {.largest_frame = kWindow, .credit_bytes = kWindow, .credit_frames = 1}));
  const TestBatch first = batch(1, 5), second = batch(0, 4);
  expect_exact(leg, first);  // and its credit does not come back
  const Ticket unsent = *leg.submit(second.batch);
  leg.set_suspect(unsent);
  ASSERT_EQ(leg.state(), LegState::kSuspect);
  leg.abandon(unsent);
  EXPECT_EQ(leg.state(), LegState::kOk);
  node_->run([&](auto& peers) { peers.at(0)->give_credit(1, kWindow / 2); });
  expect_exact(leg, second);
}

TEST_P(RangesOfANode, BusyMovesTheSoftLimitOnceAndIsAnAnswer) {
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) {
    if (mind_manners(peer, frame)) return;
    for (const std::uint32_t expected_us : {30'000'000u, 39'000'000u})
      peer.send({.type = wire::FrameType::kBusy, .sequence = frame.header.sequence},
                [&](wire::FrameBuilder& builder) { wire::add_busy(builder, {.expected_us = expected_us}); });
  });
  const TestBatch one = batch(1, 5);
  const Ticket ticket = *leg.submit(one.batch);
  const auto before = leg.soft_limit(ticket);
  leg.set_suspect(ticket);
  ASSERT_TRUE(until(leg, [&] { return leg.state() == LegState::kOk; }));
  const auto moved = leg.soft_limit(ticket);
  EXPECT_GT(moved, before + 20s);
  ASSERT_TRUE(until(leg, [&] { return node_->count(wire::FrameType::kBatch) == 1; }));
  for (int i = 0; i < 20; ++i) leg.progress();
  EXPECT_EQ(leg.soft_limit(ticket), moved);
  leg.abandon(ticket);
}

// The step goes on without this node; its connection still reads the rows until they are sent.
TEST_P(RangesOfANode, AbandonedWithUnsentRows_KeepsThemAliveItself) {
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  std::optional<TakesNoBytes> deaf(*node_);
  std::vector<std::weak_ptr<TestBatch>> rows;
  for (int i = 0; i < 28; ++i) {  // 20 MB, more than sockets hold
    auto batch = std::make_shared<TestBatch>(model(), 2, 700, 700, 8, Priority::kDecode, rng_);
    batch->batch.rows_owner = batch;
    const Ticket ticket = *leg.submit(batch->batch);
    batch->batch.rows_owner = nullptr;  // else it would own itself
    rows.push_back(batch);
    leg.abandon(ticket);
  }
  EXPECT_EQ(leg.state(), LegState::kOk);
  EXPECT_FALSE(rows.back().expired()) << "its rows are not sent yet";
  deaf.reset();
  ASSERT_TRUE(until(leg, [&] { return node_->count(wire::FrameType::kBatch) == 28; }));
  leg.close();
  leg_.reset();
  for (const auto& batch : rows) EXPECT_TRUE(batch.expired());
}

TEST_P(RangesOfANode, Mute_LostAfterTheHardLimitOfItsSilence) {
  options_.first_limit = 10ms;  // hard: 2 s
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) mind_manners(peer, frame);
  });
  const TestBatch decode = batch(1, 3);
  const Ticket ticket = *leg.submit(decode.batch);
  ASSERT_TRUE(until(leg, [&] { return leg.state() == LegState::kLost; }));
  expect_error(leg.ticket_status(ticket).error(), ErrorCode::kPeerGone, "no sign of life");
  leg.abandon(ticket);
  EXPECT_EQ(leg.counters().losses, 1u);
}

TERRACE_OVER_TRANSPORTS(RangesOfANode);

}  // namespace node_leg_ranges_test
}  // namespace terrace::legs
