// Where a trunk's memory lies on a card: no step of the limits is larger than the largest, and no two pieces meet.
#include "kernels/cuda/trunk/plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "kernels/cuda/trunk/replays.h"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned kSeed = 811;

CardTrunkModel model() {
  CardTrunkModel m;
  m.d_model = 2048;
  m.vocabulary = 151936;
  m.n_heads = 32;
  m.n_kv_heads = 4;
  m.key_dim = m.value_dim = m.n_rot = 128;
  m.n_experts = 128;
  m.top_k = 8;
  for (const TensorType type : {TensorType::kQ4_K, TensorType::kQ6_K}) {
    CardTrunkLayer layer;
    layer.q = {type, nullptr, 4096, 2048};
    layer.k = layer.v = {type, nullptr, 512, 2048};
    layer.output = {type, nullptr, 2048, 4096};
    layer.router = {TensorType::kF32, nullptr, 128, 2048};
    layer.experts = {type, type, type, 2048, 768};
    m.layers.push_back(layer);
  }
  m.head = {TensorType::kQ6_K, nullptr, 151936, 2048};
  return m;
}

CardTrunkLimits limits() { return {KvType::kF16, 512, 16, 40960, 1280, 4}; }

TEST(TrunkPlan, NoStepIsLargerThanTheLargest) {
  const StepRoom room = room_for_steps(model(), limits());
  std::mt19937 rng(kSeed);
  const auto up_to = [&](std::uint32_t most) { return std::uniform_int_distribution<std::uint32_t>(1, most)(rng); };
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t rows = up_to(512);
    const CardStepSize size{rows, up_to(std::min(rows, 16u)), up_to(rows), up_to(40960)};
    const StepLayout at = lay_out_step(model(), limits(), size, {0, room.own});
    EXPECT_LE(at.own_end, room.own) << rows << " rows, " << size.most_keys << " keys, seed " << kSeed;
    EXPECT_LE(at.end, room.bytes()) << rows << " rows, " << size.most_keys << " keys, seed " << kSeed;
    EXPECT_LE(at.in_bytes, room.in);
    EXPECT_LE(at.own_end - at.weights, room.back) << "what comes back";
    EXPECT_GE(at.partials_bytes, std::uint64_t{rows} * 32 * 130 * sizeof(float)) << "one partial a row and head";
  }
}

// However the largest step is cut: the parts' own memory lies one behind another, what a layer works in is common.
TEST(TrunkPlan, PartsOfAStep_FitWhereTheWholeDoes) {
  const StepRoom room = room_for_steps(model(), limits());
  std::mt19937 rng(kSeed);
  for (int i = 0; i < 500; ++i) {
    std::uint64_t own = 0, in = 0, back = 0;
    std::uint32_t left = 512;
    for (std::uint32_t part = 0; part < 4; ++part) {
      const std::uint32_t rows =
          part == 3 ? left : std::uniform_int_distribution<std::uint32_t>(1, left - (3 - part))(rng);
      left -= rows;
      const StepLayout at = lay_out_step(model(), limits(), {rows, std::min(rows, 16u), rows, 40960}, {own, room.own});
      EXPECT_EQ(at.x, own);
      EXPECT_LE(at.end, room.bytes()) << rows << " rows, seed " << kSeed;
      own = at.own_end;
      in += at.in_bytes;
      back += at.own_end - at.weights;
    }
    EXPECT_LE(own, room.own) << "seed " << kSeed;
    EXPECT_LE(in, room.in);
    EXPECT_LE(back, room.back);
  }
  CardTrunkLimits whole = limits();
  whole.max_parts = 1;
  EXPECT_LT(room.bytes() - room_for_steps(model(), whole).bytes(), std::uint64_t{1} << 20)
      << "parts cost next to nothing";
}

TEST(TrunkPlan, PiecesOfAStepFollowEachOther) {
  constexpr std::uint64_t kShared = std::uint64_t{1} << 30;
  const StepLayout at = lay_out_step(model(), limits(), {3, 2, 3, 700}, {256, kShared});
  EXPECT_EQ(at.x, 256u);
  EXPECT_EQ(at.slots - at.x, at.in_bytes);
  EXPECT_EQ(at.h, kShared);
  const std::uint64_t pieces[] = {
      at.x,           at.cosines, at.sines,    at.positions, at.n_keys,  at.tables,   at.wanted,
      at.blocks,      at.step,    at.slots,    at.out,       at.sums,    at.weights,  at.failures,
      at.greedy,      at.ids,     at.own_end,  at.h,         at.rows_32, at.rows_256, at.q,
      at.k,           at.v,       at.partials, at.o,         at.delta,   at.choices,  at.gate_up_groups,
      at.down_groups, at.x_rows,  at.gate_up,  at.between,   at.logits,  at.end};
  for (std::size_t i = 1; i < std::size(pieces); ++i) {
    EXPECT_LT(pieces[i - 1], pieces[i]) << "piece " << i;
    EXPECT_EQ(pieces[i] % 256, 0u) << "piece " << i;
  }
  EXPECT_GE(at.q - at.rows_256, 3u * 2048) << "card rows of three rows";
  const StepLayout none = lay_out_step(model(), limits(), {3, 2, 0, 700}, {256, kShared});
  EXPECT_EQ(none.greedy, none.ids) << "no row wants logits";
  EXPECT_GE(at.delta - at.o, 3u * 4096 * sizeof(float));
}

TEST(TrunkPlan, WeightsCacheAndStepFillTheTrunk) {
  const TrunkWeights weights = lay_out_weights(model(), 0);
  ASSERT_EQ(weights.layers.size(), 2u);
  EXPECT_EQ(weights.layers[0].k - weights.layers[0].q, row_bytes(TensorType::kQ4_K, 2048) * 4096);
  const TrunkCache cache = lay_out_cache(model(), limits(), weights.end);
  EXPECT_EQ(cache.k, weights.end);
  EXPECT_EQ(cache.k_layer_bytes, 1280u * 32 * 4 * 128 * 2);
  EXPECT_EQ(cache.end - cache.k, 2 * 2 * cache.k_layer_bytes) << "two layers of K and of V";
  EXPECT_EQ(trunk_bytes(model(), limits()), cache.end + room_for_steps(model(), limits()).bytes());
}

TEST(TrunkPlan, PinnedMemoryHoldsTheLargestStep) {
  const StepRoom room = room_for_steps(model(), limits());
  const TrunkPinned at = lay_out_pinned(model(), limits());
  EXPECT_EQ(at.in, room.in);
  EXPECT_EQ(at.back_rows, room.back);
  EXPECT_EQ(at.back_logits - at.back_rows, std::uint64_t{512} * 2048 * sizeof(float));
  EXPECT_EQ(at.back - at.back_logits, std::uint64_t{kHeadRows} * 151936 * sizeof(float));
  EXPECT_EQ(at.sums, std::uint64_t{512} * 2048 * sizeof(std::int64_t));
  EXPECT_EQ(at.flags, 2u * 2 * 64);
  EXPECT_EQ(at.bytes(), at.in + at.back + at.sums + at.flags);
}

TEST(TrunkPlan, GraphsAreForFewDepths_AndNeverForLessThanAsked) {
  std::uint32_t depths = 0, last = 0;
  for (std::uint32_t keys = 1; keys <= 5000; ++keys) {
    const std::uint32_t good_for = keys_of_graph(keys, 5000);
    EXPECT_GE(good_for, keys);
    EXPECT_LE(good_for, 5024u) << "whole blocks of the context";
    if (good_for != last) ++depths;
    last = good_for;
  }
  EXPECT_EQ(depths, 6u) << "256, 512, 1024, 2048, 4096, all";
}

// A step is never without a graph, however many sizes have come up.
TEST(TrunkReplays, BeyondTheMost_TheOneUnusedForLongestGoes) {
  constexpr std::size_t kMost = 4;
  Replays<std::unique_ptr<std::uint32_t>> replays(kMost);
  const auto key = [](std::uint32_t rows) { return ReplayKey{0, 0, 0, rows, 1, 1, 256}; };
  for (std::uint32_t rows = 0; rows < kMost; ++rows)
    EXPECT_EQ(*replays.add(key(rows), std::make_unique<std::uint32_t>(rows)), rows);
  ASSERT_NE(replays.find(key(0)), nullptr);  // so that 1 is the oldest
  EXPECT_EQ(*replays.add(key(7), std::make_unique<std::uint32_t>(7u)), 7u);
  EXPECT_EQ(replays.size(), kMost);
  EXPECT_EQ(replays.find(key(1)), nullptr);
  for (const std::uint32_t rows : {0u, 2u, 3u, 7u}) {
    ASSERT_NE(replays.find(key(rows)), nullptr) << rows << " rows";
    EXPECT_EQ(**replays.find(key(rows)), rows);
  }
  for (std::uint32_t rows = 100; rows < 200; ++rows) {
    replays.add(key(rows), std::make_unique<std::uint32_t>(rows));
    ASSERT_NE(replays.find(key(rows)), nullptr) << "what came last is there";
  }
  EXPECT_EQ(replays.size(), kMost);
}

// Graphs are memory beside the budget: where it runs out the oldest make room for the step at hand.
TEST(TrunkReplays, WithoutMemoryForAnother_TheOldestGoUntilThereIs) {
  Replays<std::unique_ptr<std::uint32_t>> replays(8);
  const auto key = [](std::uint32_t rows) { return ReplayKey{0, 0, 0, rows, 1, 1, 256}; };
  for (std::uint32_t rows = 0; rows < 4; ++rows) replays.add(key(rows), std::make_unique<std::uint32_t>(rows));
  ASSERT_NE(replays.find(key(0)), nullptr);  // so that 1 and 2 are the oldest
  std::size_t room_for = 2;                  // replays, and one that is made
  const auto make = [&]() -> Status {
    if (replays.size() > room_for) return Error(ErrorCode::kOutOfMemory, "no memory for a graph");
    return {};
  };
  std::vector<std::size_t> there_when_waited;
  const auto wait = [&]() -> Status {
    there_when_waited.push_back(replays.size());
    return {};
  };
  EXPECT_TRUE(make_in_place_of_oldest(replays, make, wait).ok());
  EXPECT_EQ(there_when_waited, (std::vector<std::size_t>{4, 3})) << "before each that goes, for it may run";
  EXPECT_EQ(replays.size(), 2u);
  for (const std::uint32_t rows : {0u, 3u}) {
    ASSERT_NE(replays.find(key(rows)), nullptr) << rows << " rows";
    EXPECT_EQ(**replays.find(key(rows)), rows);
  }
}

TEST(TrunkReplays, WithoutMemoryForTheOnlyOne_TheErrorIsTold) {
  Replays<int> replays(8);
  for (std::uint32_t rows = 0; rows < 3; ++rows) replays.add({0, 0, 0, rows, 1, 1, 256}, 1);
  int asked = 0;
  const auto make = [&]() -> Status {
    ++asked;
    return Error(ErrorCode::kOutOfMemory, "no memory for a graph");
  };
  const Status none = make_in_place_of_oldest(replays, make, [] { return Status(); });
  EXPECT_EQ(none.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(asked, 4) << "with three replays, two, one, none";
  EXPECT_FALSE(replays.drop_oldest());
}

TEST(TrunkReplays, AnotherError_DropsNone) {
  Replays<int> replays(8);
  replays.add({0, 0, 0, 1, 1, 1, 256}, 1);
  const auto fail_with = [](ErrorCode code) { return [code]() -> Status { return Error(code, "no graph"); }; };
  const auto gone = fail_with(ErrorCode::kInternal);
  const Status failed = make_in_place_of_oldest(replays, gone, [] { return Status(); });
  EXPECT_EQ(failed.error().code(), ErrorCode::kInternal);
  const auto no_memory = fail_with(ErrorCode::kOutOfMemory);
  EXPECT_EQ(make_in_place_of_oldest(replays, no_memory, gone).error().code(), ErrorCode::kInternal)
      << "a card that cannot be waited for";
  EXPECT_EQ(replays.size(), 1u);
}

}  // namespace
}  // namespace terrace::kernels::cuda
