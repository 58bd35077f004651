// A node that says no, or that dies.
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/coordinator/legs/node_leg_testing.h"

namespace terrace::legs {
namespace node_leg_loss_test {

using namespace node_leg_testing;

class NodeLegLoss : public NodeLegTest {};

TEST_P(NodeLegLoss, ErrorOfOneBatch_IsThatBatchsAlone) {
  NodeLeg& leg = start([this](Peer& peer, const wire::Frame& frame) {
    if (mind_manners(peer, frame)) return;
    if (frame.header.epoch == kEpoch) {
      for (const Reply& reply : brain_.replies(frame)) reply.send(peer);
    } else {
      brain_.replies(frame).front().send(peer);  // a part of the answer, then the refusal
      peer.send_error(frame.header.sequence, ErrorCode::kStaleEpoch, "epoch 3 was forgotten");
    }
  });
  TestBatch stale = batch(0, 20, 5, 8, Priority::kPrompt);
  stale.batch.epoch = 3;
  const TestBatch good = batch(0, 20, 5, 8, Priority::kPrompt);
  const auto first = leg.submit(good.batch);
  const auto second = leg.submit(stale.batch);
  const auto third = leg.submit(good.batch);
  Sums untouched(20);
  const Status refused = leg.collect(*second, untouched.view(), untouched.failed);
  ASSERT_FALSE(refused.ok());
  expect_error(refused.error(), ErrorCode::kStaleEpoch, "layer 0: epoch 3 was forgotten");
  EXPECT_EQ(untouched, Sums(20));
  EXPECT_EQ(leg.state(), LegState::kOk);
  expect_collected(leg, *third, good);
  expect_collected(leg, *first, good);
}

TEST_P(NodeLegLoss, Busy_ThenTheAnswer) {
  NodeLeg& leg = start([this, honest = honest()](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kBatch)
      for (const std::uint64_t sequence : {frame.header.sequence, std::uint64_t{0}})
        peer.send({.type = wire::FrameType::kBusy, .sequence = sequence},
                  [](wire::FrameBuilder& builder) { wire::add_busy(builder, {.expected_us = 1000}); });
    honest(peer, frame);
  });
  expect_exact(leg, batch(0, 3));
}

TEST_P(NodeLegLoss, NodeDiesWithOpenBatches_EachGivesTheSameError) {
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const TestBatch decode = batch(1, 3), prompt = batch(0, 40, 10, 8, Priority::kPrompt);
  const auto first = leg.submit(decode.batch);
  const auto second = leg.submit(prompt.batch);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(node_->wait_for(wire::FrameType::kBatch, 2));
  node_->die();
  const Status lost = collect(leg, *second, 40);
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kPeerGone, "lost");
  EXPECT_EQ(leg.state(), LegState::kLost);
  EXPECT_EQ(collect(leg, *first, 3).error().text(), lost.error().text());
  EXPECT_EQ(leg.submit(decode.batch).error().text(), lost.error().text());
  leg.close();
}

TEST_P(NodeLegLoss, DeadNode_SubmitNamesIt) {
  NodeLeg& leg = start(honest());
  expect_exact(leg, batch(1, 3));
  node_->die();
  const TestBatch decode = batch(1, 3);
  const auto deadline = Clock::now() + test::kPatience;
  while (Clock::now() < deadline) {
    const auto ticket = leg.submit(decode.batch);  // taken, as long as the loss has not been noticed
    const Status status = ticket.ok() ? collect(leg, *ticket, 3) : Status(ticket.error());
    ASSERT_FALSE(status.ok());
    expect_error(status.error(), ErrorCode::kPeerGone, "lost");
    if (!ticket.ok()) return;
  }
  FAIL() << "submit() never failed";
}

TEST_P(NodeLegLoss, LastWords_AreTheReason) {
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) {
    if (mind_manners(peer, frame)) return;
    peer.send_error(0, ErrorCode::kRefused, "the lease is over");
    peer.send(wire::FrameType::kClose);
    peer.hang_up();
  });
  const TestBatch decode = batch(1, 3);
  const auto ticket = leg.submit(decode.batch);
  const Status lost = ticket.ok() ? collect(leg, *ticket, 3) : Status(ticket.error());
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kRefused, "the lease is over");
}

TEST_P(NodeLegLoss, MuteNode_PeerGone) {
  liveness_timeout_ = 120ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) mind_manners(peer, frame);
  });
  const TestBatch decode = batch(1, 3);
  const Status lost = collect(leg, *leg.submit(decode.batch), 3);
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kPeerGone, "no sign of life");
}

TEST_P(NodeLegLoss, AliveWithoutAnswer_Deadline) {
  options_.batch_timeout = 150ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const TestBatch decode = batch(1, 3);
  const Status lost = collect(leg, *leg.submit(decode.batch), 3);
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kDeadline, "within 150ms");
  EXPECT_EQ(leg.state(), LegState::kLost);
}

TEST_P(NodeLegLoss, AliveWithoutCredit_Deadline) {
  options_.batch_timeout = 150ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) {
    mind_manners(peer, frame, {.largest_frame = 1 << 20, .credit_bytes = 1 << 20, .credit_frames = 1});
  });
  const TestBatch decode = batch(1, 3);
  const auto first = leg.submit(decode.batch);
  const auto second = leg.submit(decode.batch);
  const Status lost = collect(leg, *second, 3);
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kDeadline, "no credit");
  EXPECT_FALSE(collect(leg, *first, 3).ok());
}

// What is still queued when its tickets are collected must never be read again.
TEST_P(NodeLegLoss, LostWithUnsentRows_TheirMemoryIsTheCallersAgain) {
  options_.batch_timeout = 100ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  std::optional<TakesNoBytes> deaf(*node_);
  std::vector<Ticket> tickets;
  std::vector<std::unique_ptr<TestBatch>> batches;
  for (int i = 0; i < 28; ++i) {  // 20 MB, more than sockets hold
    batches.push_back(std::make_unique<TestBatch>(model(), 2, 700, 700, 8, Priority::kDecode, rng_));
    tickets.push_back(*leg.submit(batches.back()->batch));
  }
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_FALSE(collect(leg, tickets[i], 700).ok());
    batches[i].reset();  // a sanitizer sees it if it is read after this
  }
  deaf.reset();
  (void)node_->wait_for(wire::FrameType::kBatch, 2);  // there is room in the sockets again
  leg.close();
}

TERRACE_OVER_TRANSPORTS(NodeLegLoss);

}  // namespace node_leg_loss_test
}  // namespace terrace::legs
