#include "coordinator/legs/node_leg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/unit/coordinator/legs/node_leg_testing.h"

namespace terrace::legs {
namespace node_leg_test {

using namespace node_leg_testing;

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

TERRACE_OVER_TRANSPORTS(NodeLegTest);
TERRACE_OVER_TRANSPORTS(WrongAnswers);

}  // namespace node_leg_test
}  // namespace terrace::legs
