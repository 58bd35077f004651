#include "coordinator/legs/node_leg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "tests/unit/coordinator/legs/fake_node.h"
#include "tests/unit/coordinator/legs/transports.h"

namespace terrace::legs {
namespace node_leg_test {

using namespace std::chrono_literals;
using test::FakeNode;
using test::kEpoch;
using test::kWidth;
using test::local_sums;
using test::mind_manners;
using test::Peer;
using test::Reply;
using test::Sums;
using test::TestBatch;

const test::TestModel& model() {
  static const test::TestModel made;
  return made;
}

class NodeLegTest : public test::OverTransports {
 protected:
  // The leg of a node that follows `script`; its name is box1:9000.
  NodeLeg& start(FakeNode::Script script) {
    node_ = std::make_unique<FakeNode>(*transport_, std::move(script));
    options_.name = "box1:9000";
    options_.limits = model().limits();
    auto latency = open_lane(wire::Lane::kLatency);  // the node's peer 0
    leg_ = std::make_unique<NodeLeg>(options_, std::move(latency), open_lane(wire::Lane::kBulk));
    return *leg_;
  }
  std::unique_ptr<Lane> open_lane(wire::Lane which) {
    LaneOptions options;
    options.node = "box1:9000";
    options.data_address = node_->address();
    options.lane = which;
    options.session = 5;
    options.largest_frame = std::uint64_t{1} << 24;
    options.receive_window = receive_window_;
    options.liveness_timeout = liveness_timeout_;
    auto lane = Lane::open(*transport_, options);
    TERRACE_CHECK(lane.ok(), "a lane opens");
    return std::move(*lane);
  }

  // A node that computes, with its replies bent on the way.
  FakeNode::Script bent(std::function<void(std::vector<Reply>&)> bend, wire::Welcome welcome = test::ample_welcome()) {
    return [this, bend = std::move(bend), welcome](Peer& peer, const wire::Frame& frame) {
      if (mind_manners(peer, frame, welcome)) return;
      std::vector<Reply> replies = brain_.replies(frame);
      bend(replies);
      for (const Reply& reply : replies) reply.send(peer);
    };
  }
  FakeNode::Script honest() {
    return bent([](std::vector<Reply>&) {});
  }

  TestBatch batch(std::uint32_t layer, std::uint32_t n_rows, std::uint32_t range_rows = 1000, std::uint32_t n_owned = 8,
                  Priority priority = Priority::kDecode) {
    return TestBatch(model(), layer, n_rows, range_rows, n_owned, priority, rng_);
  }
  void expect_exact(NodeLeg& leg, const TestBatch& batch) {
    const auto ticket = leg.submit(batch.batch);
    ASSERT_TRUE(ticket.ok()) << ticket.error().text();
    expect_collected(leg, *ticket, batch);
  }
  void expect_collected(NodeLeg& leg, Ticket ticket, const TestBatch& batch) {
    Sums sums(batch.batch.n_rows);
    const Status collected = leg.collect(ticket, sums.view(), sums.failed);
    ASSERT_TRUE(collected.ok()) << collected.error().text();
    EXPECT_EQ(sums, local_sums(model(), batch.batch)) << "seed " << test::kSeed;
  }
  Status collect(NodeLeg& leg, Ticket ticket, std::size_t n_rows) {
    Sums sums(n_rows);
    return leg.collect(ticket, sums.view(), sums.failed);
  }

  terrace::test::Rng rng_{test::kSeed};
  test::NodeBrain brain_{model()};
  NodeLegOptions options_;
  std::uint64_t receive_window_ = std::uint64_t{1} << 26;
  std::chrono::milliseconds liveness_timeout_{10'000};
  std::unique_ptr<FakeNode> node_;
  std::unique_ptr<NodeLeg> leg_;
};

void expect_error(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(name(error.code()), std::string(name(code))) << error.text();
  EXPECT_EQ(error.text().find("box1:9000"), 0u) << error.text();
  EXPECT_EQ(error.text().find("box1:9000", 1), std::string::npos) << "named twice: " << error.text();
  EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
}

// ---- exact sums -----------------------------------------------------------------------------------------------------

TEST_P(NodeLegTest, DecodeAndPromptBatches_EqualLocalExecutor) {
  NodeLeg& leg = start(honest());
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer) {
    expect_exact(leg, batch(layer, 1));
    expect_exact(leg, batch(layer, 5, 1000, 2));
    expect_exact(leg, batch(layer, 70, 16, 3, Priority::kPrompt));
  }
  EXPECT_EQ(leg.counters().batches, 9u);
  EXPECT_GT(leg.counters().round_trip_us, 0u);
  EXPECT_EQ(leg.state(), LegState::kOk);
}

// Who else works for the step unpacks rows too, whatever the order; of few rows nobody is woken.
TEST_P(NodeLegTest, PromptsSums_UnpackedByAllWorkers) {
  struct Workers final : Parallel {
    std::size_t rows = 0;
    std::size_t n_workers() const override { return 2; }
    void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
      rows += n_items;
      for (std::size_t i = n_items; i-- > 0;) fn(i, i % 2);
    }
    void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
      Serial().run_in_order(n_items, fn);
    }
  } workers;
  options_.parallel = &workers;
  NodeLeg& leg = start(honest());
  expect_exact(leg, batch(0, kRowsToShare + 9, kRowsToShare, 8, Priority::kPrompt));
  EXPECT_EQ(workers.rows, kRowsToShare);
  expect_exact(leg, batch(1, 70, 40, 3, Priority::kPrompt));  // rows without a pair do not travel
  expect_exact(leg, batch(2, 1));
}

// Batches in flight at once go by connections of their own, and are answered there.
TEST_P(NodeLegTest, SeveralBulkConnections_EachBatchByTheOneThatOwesTheLeast) {
  node_ = std::make_unique<FakeNode>(*transport_, honest());
  options_.name = "box1:9000";
  options_.limits = model().limits();
  auto latency = open_lane(wire::Lane::kLatency);
  std::vector<std::unique_ptr<Lane>> bulk;
  for (int i = 0; i < 3; ++i) bulk.push_back(open_lane(wire::Lane::kBulk));
  leg_ = std::make_unique<NodeLeg>(options_, std::move(latency), std::move(bulk));
  const TestBatch first = batch(0, 40, 16, 3, Priority::kPrompt), second = batch(1, 40, 16, 3, Priority::kPrompt);
  const TestBatch decode = batch(2, 1);
  const Ticket tickets[] = {*leg_->submit(first.batch), *leg_->submit(second.batch), *leg_->submit(decode.batch)};
  expect_collected(*leg_, tickets[1], second);
  expect_collected(*leg_, tickets[2], decode);
  expect_collected(*leg_, tickets[0], first);
  std::vector<std::uint64_t> frames;
  node_->run([&](auto& peers) {
    for (const auto& peer : peers) frames.push_back(peer->connection().stats().frames_received);
  });
  // A hello each, and one batch on all but the last.
  EXPECT_EQ(frames, (std::vector<std::uint64_t>{2, 2, 2, 1}));
}

TEST_P(NodeLegTest, SumsAreAddedToWhatIsThere) {
  NodeLeg& leg = start(honest());
  const TestBatch one = batch(1, 4);
  Sums sums(4);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(leg.collect(*leg.submit(one.batch), sums.view(), sums.failed).ok());
  Sums twice = local_sums(model(), one.batch);
  for (std::int64_t& value : twice.values) value *= 2;
  EXPECT_EQ(sums, twice);
}

// ---- slots, for audits ----------------------------------------------------------------------------------------------

TEST_P(NodeLegTest, Slots_EqualLocalExecutorInTheBatchsOrder) {
  NodeLeg& leg = start(honest());
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer) {
    TestBatch one = batch(layer, 20, 1000, 3);
    one.batch.form = ReplyForm::kSlots;
    const Ticket ticket = *leg.submit(one.batch);
    const auto deadline = std::chrono::steady_clock::now() + test::kPatience;
    while (leg.range_state(ticket, 0) == RangeState::kOpen && std::chrono::steady_clock::now() < deadline) {
      leg.progress();
      ASSERT_TRUE(leg.ticket_status(ticket).ok()) << leg.ticket_status(ticket).error().text();
    }
    test::Slots slots(one.batch);
    leg.take_slots(ticket, slots.values, slots.failed);
    leg.abandon(ticket);
    EXPECT_EQ(slots, local_slots(model(), one.batch)) << "layer " << layer;
  }
  EXPECT_GT(leg.counters().audited_pairs, 0u);
  expect_exact(leg, batch(1, 4));  // sums go on beside
}

TEST_P(NodeLegTest, SlotsWhereSumsWereAskedFor_AreWrong) {
  NodeLeg& leg = start(bent([](std::vector<Reply>& replies) {
    for (Reply& reply : replies) {
      reply.form = wire::ReplyForm::kSlots;
      reply.data.assign(reply.info.n_pairs * kWidth * sizeof(float), std::byte{0});
    }
  }));
  const TestBatch one = batch(1, 4);
  expect_error(collect(leg, *leg.submit(one.batch), 4).error(), ErrorCode::kCorrupt, "has another form");
  EXPECT_EQ(leg.state(), LegState::kWrong);
}

TEST_P(NodeLegTest, PutOut_IsWrongAndTellsWhyForEver) {
  NodeLeg& leg = start(honest());
  const TestBatch one = batch(1, 4);
  const Ticket open = *leg.submit(one.batch);
  leg.put_out(LegState::kWrong, Error(ErrorCode::kCorrupt, "box1:9000: computes wrong"));
  EXPECT_EQ(leg.state(), LegState::kWrong);
  expect_error(collect(leg, open, 4).error(), ErrorCode::kCorrupt, "computes wrong");
  expect_error(leg.submit(one.batch).error(), ErrorCode::kCorrupt, "computes wrong");
}

TEST_P(NodeLegTest, SeveralOpen_CollectedInAnyOrder) {
  NodeLeg& leg = start(honest());
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<TestBatch>> batches;
    std::vector<Ticket> tickets;
    for (std::uint32_t i = 0; i < 6; ++i) {
      batches.push_back(std::make_unique<TestBatch>(model(), i % 3, 3 + 9 * i, 8, 5,
                                                    i % 2 == 0 ? Priority::kDecode : Priority::kPrompt, rng_));
      const auto ticket = leg.submit(batches.back()->batch);
      ASSERT_TRUE(ticket.ok()) << ticket.error().text();
      tickets.push_back(*ticket);
    }
    std::vector<std::size_t> order{0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), rng_);
    for (const std::size_t i : order) expect_collected(leg, tickets[i], *batches[i]);
  }
}

TEST_P(NodeLegTest, RepliesInAnyOrderOfRanges_SameSums) {
  NodeLeg& leg = start(bent([this](std::vector<Reply>& replies) {
    std::shuffle(replies.begin(), replies.end(), rng_);  // the node's thread alone uses it meanwhile
  }));
  const TestBatch prompt(model(), 0, 64, 8, 4, Priority::kPrompt, rng_);
  for (int i = 0; i < 5; ++i) expect_exact(leg, prompt);
}

TEST_P(NodeLegTest, RowsWithoutAPair_DoNotTravel) {
  NodeLeg& leg = start(honest());
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer) {
    const TestBatch some = batch(layer, 40, 10, 1, Priority::kPrompt);
    wire::BatchShape shape{.n_rows = 0,
                           .n_pairs = static_cast<std::uint32_t>(some.pairs.size()),
                           .n_ranges = 0,
                           .d_model = kWidth,
                           .gate_class = model().kernels[layer].gate_class(),
                           .up_class = model().kernels[layer].up_class()};
    std::vector<std::uint8_t> used(40), ranges(4);
    for (const kernels::Pair& pair : some.pairs) used[pair.row] = ranges[pair.row / 10] = 1;
    shape.n_rows = static_cast<std::uint32_t>(std::count(used.begin(), used.end(), 1));
    shape.n_ranges = static_cast<std::uint32_t>(std::count(ranges.begin(), ranges.end(), 1));
    ASSERT_LT(shape.n_rows, 40u);
    const std::uint64_t rows_before = leg.counters().rows;
    expect_exact(leg, some);
    EXPECT_EQ(node_->seen().back().bytes, wire::batch_frame_bytes(shape)) << "layer " << layer;
    EXPECT_EQ(leg.counters().rows - rows_before, shape.n_rows);
  }
}

TEST_P(NodeLegTest, FailedRows_AreTheCallers) {
  NodeLeg& leg = start(bent([](std::vector<Reply>& replies) {
    replies.at(1).failed_rows = {static_cast<std::uint16_t>(replies[0].info.n_rows + 1)};  // second row of range 1
  }));
  const TestBatch some = batch(1, 40, 20, 2, Priority::kPrompt);
  std::vector<std::uint8_t> used(40);
  for (const kernels::Pair& pair : some.pairs) used[pair.row] = 1;
  std::size_t expected = 20;
  for (int seen = 0; seen < 2; ++expected) seen += used[expected];
  ASSERT_NE(std::count(used.begin(), used.begin() + 20, 1), 20) << "the row has another number on the wire";
  Sums sums(40);
  ASSERT_TRUE(leg.collect(*leg.submit(some.batch), sums.view(), sums.failed).ok());
  std::vector<std::uint8_t> right(40);
  right[expected - 1] = 1;
  EXPECT_EQ(sums.failed, right);
}

// ---- credit and windows ---------------------------------------------------------------------------------------------

TEST_P(NodeLegTest, CreditOfOneFrame_BatchesGoOneAtATime) {
  // The node's: its thread counts down after its answer, when all is collected here.
  struct Count {
    std::atomic<int> open = 0, most = 0;
  };
  const auto count = std::make_shared<Count>();
  NodeLeg& leg = start([&, count, honest = honest()](Peer& peer, const wire::Frame& frame) {
    if (mind_manners(peer, frame, {.largest_frame = 1 << 20, .credit_bytes = 1 << 20, .credit_frames = 1})) return;
    count->most = std::max<int>(count->most, ++count->open);
    honest(peer, frame);
    --count->open;
  });
  std::vector<std::unique_ptr<TestBatch>> batches;
  std::vector<Ticket> tickets;
  for (std::uint32_t i = 0; i < 5; ++i) {
    batches.push_back(std::make_unique<TestBatch>(model(), i % 3, 7, 7, 8, Priority::kDecode, rng_));
    tickets.push_back(*leg.submit(batches.back()->batch));
  }
  for (std::size_t i = 5; i-- > 0;) expect_collected(leg, tickets[i], *batches[i]);
  EXPECT_EQ(count->most, 1);
  EXPECT_EQ(node_->count(wire::FrameType::kBatch), 5u);
}

TEST_P(NodeLegTest, BatchBeyondTheNodesWindow_IsRefused) {
  NodeLeg& leg =
      start(bent([](std::vector<Reply>&) {}, {.largest_frame = 4000, .credit_bytes = 8000, .credit_frames = 4}));
  TestBatch large = batch(0, 64);
  const auto rows = std::make_shared<int>(0);
  large.batch.rows_owner = rows;
  const auto refused = leg.submit(large.batch);
  ASSERT_FALSE(refused.ok());
  expect_error(refused.error(), ErrorCode::kRefused, "takes 4000");
  large.batch.rows_owner = nullptr;
  EXPECT_EQ(rows.use_count(), 1) << "rows that do not travel are somebody's still";
  expect_exact(leg, batch(0, 2));
}

// More replies than the window holds could never be received: the batch after them would wait for ever.
TEST_P(NodeLegTest, RepliesBeyondTheReceiveWindow_Busy) {
  receive_window_ = std::uint64_t{1} << 24;
  NodeLeg& leg = start(honest());
  std::vector<std::unique_ptr<TestBatch>> batches;
  std::vector<Ticket> tickets;
  for (;;) {
    batches.push_back(std::make_unique<TestBatch>(model(), 1, 700, 100, 2, Priority::kPrompt, rng_));
    const auto ticket = leg.submit(batches.back()->batch);
    if (!ticket.ok()) {
      expect_error(ticket.error(), ErrorCode::kBusy, "receive window");
      break;
    }
    tickets.push_back(*ticket);
    ASSERT_LT(tickets.size(), 100u);
  }
  EXPECT_GT(tickets.size(), 5u);
  expect_collected(leg, tickets.back(), *batches[tickets.size() - 1]);
  tickets.pop_back();
  expect_exact(leg, *batches.back());
  for (std::size_t i = 0; i < tickets.size(); ++i) expect_collected(leg, tickets[i], *batches[i]);
}

// ---- answers that are wrong -----------------------------------------------------------------------------------------

struct WrongAnswer {
  const char* name;
  std::function<void(std::vector<Reply>&)> bend;
  const char* text;
};

const std::vector<WrongAnswer>& wrong_answers() {
  static const std::vector<WrongAnswer> all{
      {"UnknownSequence", [](auto& r) { r[0].header.sequence += 5; }, "not open"},
      {"SequenceZero", [](auto& r) { r[0].header.sequence = 0; }, "not open"},
      {"RangeTwice", [](auto& r) { r[1] = r[0]; }, "each once"},
      {"RangeBeyond", [](auto& r) { r[0].info.range_index = 4; }, "row range 4"},
      {"FewerRows", [](auto& r) { --r[0].info.n_rows; }, "rows"},
      {"MorePairs", [](auto& r) { ++r[0].info.n_pairs; }, "pairs"},
      {"OtherEpoch", [](auto& r) { ++r[0].header.epoch; }, "epoch"},
      {"OtherLayer", [](auto& r) { r[0].header.layer = 2; }, "layer 2"},
      {"NoSuchLayer", [](auto& r) { r[0].header.layer = 77; }, "layer 77"},
      {"OtherForm",
       [](auto& r) {
         r[0].form = wire::ReplyForm::kSlots;
         r[0].data.resize(r[0].info.n_pairs * kWidth * sizeof(float));
       },
       "form"},
      {"RowsTooShort", [](auto& r) { r[0].data.pop_back(); }, "packed row"},
      {"RowsTooLong", [](auto& r) { r[0].data.push_back(std::byte{0}); }, "sums have"},
      {"RowsNotCanonical",
       [](auto& r) {
         std::vector<std::byte>& data = r[0].data;  // the last row with one byte of zeros where none would do
         data.assign((r[0].info.n_rows - 1) * (kWidth / 64), std::byte{0});
         for (std::size_t block = 0; block < kWidth / 64; ++block) {
           data.push_back(std::byte{1});
           data.insert(data.end(), 64, std::byte{0});
         }
       },
       "less would do"},
      {"FailedRowBeforeItsRange", [](auto& r) { r[1].failed_rows = {0}; }, "failed row 0"},
      {"FailedRowBehindItsRange", [](auto& r) { r[0].failed_rows = {static_cast<std::uint16_t>(r[0].info.n_rows)}; },
       "failed row"},
  };
  return all;
}

class WrongAnswers : public NodeLegTest {};

TEST_P(WrongAnswers, AreCorruptAndTheLegIsWrong) {
  for (const WrongAnswer& wrong : wrong_answers()) {
    SCOPED_TRACE(wrong.name);
    NodeLeg& leg = start(bent([&](std::vector<Reply>& replies) {
      ASSERT_EQ(replies.size(), 4u);
      wrong.bend(replies);
    }));
    const TestBatch prompt = batch(1, 32, 8, 8, Priority::kPrompt);
    const auto ticket = leg.submit(prompt.batch);
    ASSERT_TRUE(ticket.ok());
    const Status collected = collect(leg, *ticket, 32);
    ASSERT_FALSE(collected.ok());
    expect_error(collected.error(), ErrorCode::kCorrupt, wrong.text);
    EXPECT_EQ(leg.state(), LegState::kWrong);
    const auto again = leg.submit(prompt.batch);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().text(), collected.error().text());
  }
}

TEST_P(NodeLegTest, AnswerOnTheOtherLane_Corrupt) {
  std::vector<Reply> late;
  NodeLeg& leg = start([&](Peer& peer, const wire::Frame& frame) {
    if (!mind_manners(peer, frame)) late = brain_.replies(frame);
  });
  const TestBatch decode = batch(1, 1);
  const auto ticket = leg.submit(decode.batch);
  ASSERT_TRUE(node_->wait_for(wire::FrameType::kBatch, 1));
  node_->run([&](auto& peers) { late.at(0).send(*peers.at(1)); });
  const Status collected = collect(leg, *ticket, 1);  // waits on both lanes
  ASSERT_FALSE(collected.ok());
  expect_error(collected.error(), ErrorCode::kCorrupt, "not open");
}

// ---- a node that says no, or that dies ------------------------------------------------------------------------------

TEST_P(NodeLegTest, ErrorOfOneBatch_IsThatBatchsAlone) {
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

TEST_P(NodeLegTest, Busy_ThenTheAnswer) {
  NodeLeg& leg = start([this, honest = honest()](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kBatch)
      for (const std::uint64_t sequence : {frame.header.sequence, std::uint64_t{0}})
        peer.send({.type = wire::FrameType::kBusy, .sequence = sequence},
                  [](wire::FrameBuilder& builder) { wire::add_busy(builder, {.expected_us = 1000}); });
    honest(peer, frame);
  });
  expect_exact(leg, batch(0, 3));
}

TEST_P(NodeLegTest, NodeDiesWithOpenBatches_EachGivesTheSameError) {
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

TEST_P(NodeLegTest, DeadNode_SubmitNamesIt) {
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

TEST_P(NodeLegTest, LastWords_AreTheReason) {
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

TEST_P(NodeLegTest, MuteNode_PeerGone) {
  liveness_timeout_ = 120ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) {
    if (frame.header.type == wire::FrameType::kHello) mind_manners(peer, frame);
  });
  const TestBatch decode = batch(1, 3);
  const Status lost = collect(leg, *leg.submit(decode.batch), 3);
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kPeerGone, "no sign of life");
}

TEST_P(NodeLegTest, AliveWithoutAnswer_Deadline) {
  options_.batch_timeout = 150ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  const TestBatch decode = batch(1, 3);
  const Status lost = collect(leg, *leg.submit(decode.batch), 3);
  ASSERT_FALSE(lost.ok());
  expect_error(lost.error(), ErrorCode::kDeadline, "within 150ms");
  EXPECT_EQ(leg.state(), LegState::kLost);
}

TEST_P(NodeLegTest, AliveWithoutCredit_Deadline) {
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

// A node that takes no bytes: what is still queued when its tickets are collected must never be read again.
TEST_P(NodeLegTest, LostWithUnsentRows_TheirMemoryIsTheCallersAgain) {
  options_.batch_timeout = 100ms;
  NodeLeg& leg = start([](Peer& peer, const wire::Frame& frame) { mind_manners(peer, frame); });
  bool stop = false;
  std::mutex mutex;
  std::thread blocker([&] {
    node_->run([&](auto&) {
      for (;; std::this_thread::sleep_for(1ms)) {
        const std::lock_guard lock(mutex);
        if (stop) return;
      }
    });
  });
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
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  blocker.join();
  (void)node_->wait_for(wire::FrameType::kBatch, 2);  // there is room in the sockets again
  leg.close();
}

// ---- range by range -------------------------------------------------------------------------------------------------

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
  bool stop = false;
  std::mutex mutex;
  std::thread blocker([&] {
    node_->run([&](auto&) {
      for (;; std::this_thread::sleep_for(1ms)) {
        const std::lock_guard lock(mutex);
        if (stop) return;
      }
    });
  });
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
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  blocker.join();
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
TERRACE_OVER_TRANSPORTS(NodeLegTest);
TERRACE_OVER_TRANSPORTS(WrongAnswers);

}  // namespace node_leg_test
}  // namespace terrace::legs
