#include "kernels/executor/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/executor/test_layer.h"
#include "tests/unit/kernels/executor/test_pool.h"

namespace terrace::kernels {
namespace {

using test::Call;
using test::Layer;
using test::Outcome;
using test::Rows;

constexpr std::uint32_t kSeed = 4711;
constexpr TensorType kQ4_K = TensorType::kQ4_K, kQ6_K = TensorType::kQ6_K, kQ8_0 = TensorType::kQ8_0,
                     kQ4_0 = TensorType::kQ4_0, kF16 = TensorType::kF16, kF32 = TensorType::kF32;

// Classes alike, different between gate and up, float at either end; ff and d_model that are no multiple of a chunk.
const ExpertShape kShapes[] = {
    {kQ4_K, kQ4_K, kQ6_K, 512, 256}, {kQ4_K, kQ8_0, kQ4_0, 256, 320}, {kQ8_0, kQ8_0, kF16, 96, 160},
    {kF32, kQ4_0, kQ8_0, 160, 96},   {kF32, kF16, kF32, 72, 40},
};

Pair pair_of(int row, int expert, float weight = 0.5f) {
  return {static_cast<std::uint16_t>(row), static_cast<std::uint16_t>(expert), weight};
}

ExpertKernels kernels_of(const ExpertShape& shape, Isa isa, Activations activations = Activations::kQuantised) {
  return *select_expert_kernels(shape, detect_cpu_features(), isa, activations);
}
Ops ops_of(Isa isa) { return *select_ops(detect_cpu_features(), isa); }

// One layer of kShapes[0] with 6 experts and 9 rows.
class LayerTest : public testing::Test {
 protected:
  test::Rng rng_{kSeed};
  Layer layer_ = Layer::random(kShapes[0], 6, rng_);
  Rows rows_ = Rows::random(9, layer_.shape.d_model, rng_);
  std::vector<Pair> pairs_ = test::random_pairs(9, 6, 4, rng_);
  Isa isa_ = detect_cpu_features().isas().back();
  Ops ops_ = ops_of(isa_);
  Call call_{layer_, rows_, kernels_of(layer_.shape, isa_)};
};

// On two workers.
class ExecutorTest : public LayerTest {
 protected:
  test::TestPool pool_{2};
  Executor executor_{pool_, ops_};
};

using Case = std::tuple<Isa, std::size_t, std::size_t, Activations>;  // ISA, workers, pairs of a slice, activations
class ExecutorCases : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Isa isa = std::get<Isa>(GetParam());
    if (!detect_cpu_features().has(isa)) GTEST_SKIP() << "this CPU lacks " << name(isa);
  }
};

TEST_P(ExecutorCases, RandomBatches_EqualEachPairAlone) {
  const auto [isa, n_workers, slice, activations] = GetParam();
  test::TestPool pool(n_workers);
  Serial serial;
  const Ops ops = ops_of(isa);
  Executor executor(n_workers == 1 ? static_cast<Parallel&>(serial) : pool, ops, slice);  // scratch is used again
  test::Rng rng(kSeed);
  for (const ExpertShape& shape : kShapes) {
    SCOPED_TRACE(std::string(info(shape.gate).name) + " " + std::string(info(shape.down).name));
    const Layer layer = Layer::random(shape, 5, rng);
    const Rows rows = Rows::random(6, shape.d_model, rng);
    const std::vector<Pair> pairs = test::random_pairs(6, 5, 3, rng);
    const Outcome right = test::expected(layer, rows, pairs, 24, activations);
    ASSERT_EQ(right.failed, std::vector<std::uint8_t>(6)) << "the test's own numbers are too large";

    const Call call{layer, rows, kernels_of(shape, isa, activations)};
    Outcome outcome;
    const auto stats = call.sums(executor, pairs, outcome);
    ASSERT_TRUE(stats.ok()) << stats.error().text();
    EXPECT_EQ(stats->pairs, pairs.size());
    EXPECT_EQ(outcome.sums, right.sums);
    ASSERT_TRUE(call.slots(executor, pairs, outcome).ok());
    EXPECT_EQ(outcome.slots, right.slots);
    EXPECT_EQ(outcome.failed, right.failed);
  }
}

std::string case_name(const testing::TestParamInfo<Case>& param_info) {
  const auto [isa, n_workers, slice, activations] = param_info.param;
  return test::isa_identifier(isa) + "_" + std::to_string(n_workers) + "_workers_slices_of_" + std::to_string(slice) +
         (activations == Activations::kF32 ? "_f32" : "");
}
INSTANTIATE_TEST_SUITE_P(All, ExecutorCases,
                         testing::Combine(testing::ValuesIn(test::every_isa()), testing::Values(1, 2, 4),
                                          testing::Values(1, 2, 7, 512),
                                          testing::Values(Activations::kQuantised, Activations::kF32)),
                         case_name);

// One row of several experts, as decoding has them, and rows that share experts, in turn: what one batch leaves in the
// scratch is wrong for the next.
TEST_F(LayerTest, AnyNumberOfWorkers_SameBits) {
  const std::vector<Pair> batches[] = {test::random_pairs(1, 6, 6, rng_), pairs_};
  const Outcome right[] = {test::expected(layer_, rows_, batches[0], 24),
                           test::expected(layer_, rows_, batches[1], 24)};
  for (const std::size_t n_workers : {1, 2, 3, 8}) {
    test::TestPool pool(n_workers);
    Executor executor(pool, ops_);
    for (int round = 0; round < 30; ++round) {
      Outcome outcome;
      ASSERT_TRUE(call_.sums(executor, batches[round % 2], outcome).ok());
      ASSERT_EQ(outcome.sums, right[round % 2].sums) << n_workers << " workers, round " << round << ", seed " << kSeed;
    }
  }
}

// The first item begins only when the last has ended, or, since that may wait for the first, after a while.
class LateFirstItem final : public Parallel {
 public:
  std::size_t n_workers() const override { return pool_.n_workers(); }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override { run_in_order(n_items, fn); }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    constexpr std::chrono::milliseconds kWhile{20};
    std::atomic<bool> last_ended = false;
    pool_.run(n_items, [&](std::size_t item, std::size_t worker) {
      const auto end = std::chrono::steady_clock::now() + kWhile;
      while (item == 0 && !last_ended && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      fn(item, worker);
      if (item + 1 == n_items) last_ended = true;
    });
  }

 private:
  test::TestPool pool_{3};
};

TEST_F(LayerTest, DownWaitsForTheLastOfGateAndUp) {
  LateFirstItem parallel;
  Executor executor(parallel, ops_);
  for (const std::vector<Pair>& pairs : {pairs_, test::random_pairs(1, 6, 6, rng_), pairs_}) {
    Outcome outcome;
    ASSERT_TRUE(call_.sums(executor, pairs, outcome).ok());
    EXPECT_EQ(outcome.sums, test::expected(layer_, rows_, pairs, 24).sums);
  }
}

TEST_F(ExecutorTest, PiecesOfABatchInAnyOrder_SameSums) {
  Outcome whole;
  ASSERT_TRUE(call_.sums(executor_, pairs_, whole).ok());
  for (const int n_pieces : {2, 3, 6}) {
    Outcome pieces;
    for (int piece = n_pieces - 1; piece >= 0; --piece) {  // expert e belongs to piece e mod n_pieces, last first
      std::vector<Pair> some;
      for (const Pair& pair : pairs_)
        if (pair.expert % n_pieces == piece) some.push_back(pair);
      ASSERT_TRUE(call_.sums(executor_, some, pieces).ok());
    }
    EXPECT_EQ(pieces.sums, whole.sums) << n_pieces << " pieces, seed " << kSeed;
  }
}

TEST_F(ExecutorTest, RowDoesNotDependOnItsBatch) {
  Outcome whole;
  ASSERT_TRUE(call_.sums(executor_, pairs_, whole).ok());
  for (std::uint16_t row = 0; row < rows_.size(); ++row) {
    std::vector<Pair> own;
    for (const Pair& pair : pairs_)
      if (pair.row == row) own.push_back(pair);
    Outcome alone;
    ASSERT_TRUE(call_.sums(executor_, own, alone).ok());
    const std::size_t begin = row * layer_.shape.d_model;
    EXPECT_TRUE(std::equal(&alone.sums[begin], &alone.sums[begin] + layer_.shape.d_model, &whole.sums[begin])) << row;
  }
}

TEST_F(ExecutorTest, SlotsAddedByTheCaller_EqualSums) {
  for (const int shift : {16, 24, 30}) {
    call_.shift = shift;
    Outcome outcome;
    ASSERT_TRUE(call_.sums(executor_, pairs_, outcome).ok());
    ASSERT_TRUE(call_.slots(executor_, pairs_, outcome).ok());
    const std::size_t d_model = layer_.shape.d_model;
    std::vector<std::int64_t> sums(outcome.sums.size());
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      ASSERT_TRUE(ops_.add_fixed(pairs_[i].weight, &outcome.slots[i * d_model], d_model, shift,
                                 &sums[pairs_[i].row * d_model]));
    EXPECT_EQ(sums, outcome.sums) << "shift " << shift;
  }
}

TEST_F(ExecutorTest, EmptyBatch_GivesNothing) {
  Outcome outcome;
  const auto stats = call_.sums(executor_, {}, outcome);
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->pairs, 0u);
  EXPECT_EQ(outcome.sums, std::vector<std::int64_t>(rows_.size() * layer_.shape.d_model));
}

// ---- rows that fail -------------------------------------------------------------------------------------------------

class BadPart : public ExecutorTest, public testing::WithParamInterface<test::Bytes test::Slab::*> {};

// A NaN in one weight of expert 2 fails exactly the rows that use it; the others' sums are untouched.
TEST_P(BadPart, FailsTheRowsThatUseItAndNoOther) {
  test::Bytes& part = layer_.experts[2].*GetParam();
  const TensorType type = GetParam() == &test::Slab::down ? layer_.shape.down : layer_.shape.gate;
  const std::size_t middle = part.size() / info(type).block_bytes / 2 * info(type).block_bytes;
  test::put_u16(part, middle + test::scale_offsets(type)[0], 0x7e00);
  const Outcome right = test::expected(layer_, rows_, pairs_, 24);
  ASSERT_NE(right.failed, std::vector<std::uint8_t>(9));
  ASSERT_NE(right.failed, std::vector<std::uint8_t>(9, 1));

  Outcome sums, slots;
  ASSERT_TRUE(call_.sums(executor_, pairs_, sums).ok());
  ASSERT_TRUE(call_.slots(executor_, pairs_, slots).ok());
  EXPECT_EQ(sums.failed, right.failed);
  EXPECT_EQ(slots.failed, right.failed);
  const std::size_t d_model = layer_.shape.d_model;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (right.failed[row]) continue;
    const auto* own = &sums.sums[row * d_model];
    EXPECT_TRUE(std::equal(own, own + d_model, &right.sums[row * d_model])) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, BadPart, testing::Values(&test::Slab::gate, &test::Slab::up, &test::Slab::down),
                         [](const auto& param_info) {
                           return param_info.param == &test::Slab::gate ? "gate"
                                  : param_info.param == &test::Slab::up ? "up"
                                                                        : "down";
                         });

TEST_F(ExecutorTest, OutputBeyondTheFixedPointRange_FailsItsRowInSumsOnly) {
  const std::vector<Pair> pairs = {pair_of(1, 0), pair_of(4, 0, 0x1p60f), pair_of(5, 3)};
  Outcome sums, slots;
  ASSERT_TRUE(call_.sums(executor_, pairs, sums).ok());
  ASSERT_TRUE(call_.slots(executor_, pairs, slots).ok());
  EXPECT_EQ(sums.failed, (std::vector<std::uint8_t>{0, 0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(slots.failed, std::vector<std::uint8_t>(9));
}

TEST_F(ExecutorTest, EarlierFailures_Stay) {
  Outcome outcome;
  outcome.failed = std::vector<std::uint8_t>(9);
  outcome.failed[7] = 1;
  ASSERT_TRUE(call_.sums(executor_, pairs_, outcome).ok());
  EXPECT_EQ(outcome.failed[7], 1);
}

// ---- slices ---------------------------------------------------------------------------------------------------------

TEST_F(ExecutorTest, HookRunsBetweenSlicesOnly) {
  for (const std::size_t slice : {1, 5, 36, 512}) {
    Executor executor(pool_, ops_, slice);
    std::size_t n_calls = 0;
    Outcome outcome;
    ASSERT_TRUE(call_.sums(executor, pairs_, outcome, [&] { return ++n_calls, true; }).ok());
    EXPECT_EQ(n_calls, (pairs_.size() + slice - 1) / slice - 1) << slice;
  }
}

TEST_F(ExecutorTest, HookThatSaysNo_StopsWithDeadline) {
  Executor executor(pool_, ops_, 5);
  int n_calls = 0;
  Outcome outcome;
  const auto second = [&] { return ++n_calls < 2; };
  const auto stats = call_.sums(executor, pairs_, outcome, second);
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().code(), ErrorCode::kDeadline);
  EXPECT_NE(stats.error().text().find("10 of 36"), std::string::npos) << stats.error().text();
  EXPECT_EQ(n_calls, 2);

  Outcome again;  // the executor is as good as new
  ASSERT_TRUE(call_.sums(executor, pairs_, again).ok());
  EXPECT_EQ(again.sums, test::expected(layer_, rows_, pairs_, 24).sums);
}

TEST_F(ExecutorTest, HookMayUseAnotherExecutorOnTheSameWorkers) {
  Executor sliced(pool_, ops_, 7);
  const Outcome right = test::expected(layer_, rows_, pairs_, 24);
  const auto interrupt = [&] {
    Outcome urgent;
    EXPECT_TRUE(call_.sums(executor_, pairs_, urgent).ok());
    EXPECT_EQ(urgent.sums, right.sums);
    return true;
  };
  Outcome outcome;
  ASSERT_TRUE(call_.sums(sliced, pairs_, outcome, interrupt).ok());
  EXPECT_EQ(outcome.sums, right.sums);
}

// Says it has many workers and counts the items it is given.
class CountingParallel final : public Parallel {
 public:
  std::size_t n_workers() const override { return 16; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override { run_in_order(n_items, fn); }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    items.push_back(n_items);
    for (std::size_t item = 0; item < n_items; ++item) fn(item, item % 16);
  }
  std::vector<std::size_t> items;
};

TEST_F(ExecutorTest, OneRowOfEightExperts_KeepsSixteenWorkersBusy) {
  const Layer layer = Layer::random({kQ4_K, kQ4_K, kQ6_K, 2048, 768}, 8, rng_);
  const Rows row = Rows::random(1, 2048, rng_);
  CountingParallel parallel;
  Executor executor(parallel, ops_);
  Outcome outcome;
  const Call call{layer, row, kernels_of(layer.shape, isa_)};
  const std::vector<Pair> pairs = test::random_pairs(1, 8, 8, rng_);
  ASSERT_TRUE(call.sums(executor, pairs, outcome).ok());
  EXPECT_EQ(parallel.items, (std::vector<std::size_t>{64 + 64}));  // 96 rows of gate and up, 32 of each down
  EXPECT_EQ(outcome.sums, test::expected(layer, row, pairs, 24).sums);
}

// ---- our own bugs abort ---------------------------------------------------------------------------------------------

// On the calling thread alone: a death test forks.
class ExecutorDeathTest : public LayerTest {
 protected:
  Serial serial_;
  Executor executor_{serial_, ops_};
};

TEST_F(ExecutorDeathTest, ExpertThatIsNotHeld_Aborts) {
  for (const int missing : {0, 1, 2}) {
    const auto slab_of = [&](std::uint16_t expert) {
      SlabView slab = layer_.experts[expert].view();
      (missing == 0 ? slab.gate : missing == 1 ? slab.up : slab.down) = nullptr;
      return slab;
    };
    std::vector<std::int64_t> sums(9 * 512);
    std::vector<std::uint8_t> failed(9);
    const BatchView batch = rows_.batch(call_.kernels, pairs_);
    EXPECT_DEATH(
        static_cast<void>(executor_.run(call_.kernels, slab_of, batch, {sums.data(), 512, 24}, failed, test::kAlways)),
        "does not hold");
  }
}

TEST_F(ExecutorDeathTest, RowBehindTheLast_Aborts) {
  Outcome outcome;
  const std::vector<Pair> pairs = {pair_of(9, 0)};
  EXPECT_DEATH(static_cast<void>(call_.sums(executor_, pairs, outcome)), "behind the batch's last");
}

TEST_F(ExecutorDeathTest, RowsOfAnotherClass_Abort) {
  BatchView batch = rows_.batch(call_.kernels, pairs_);
  batch.up_rows = rows_.view(ActivationClass::kA8x32);
  std::vector<std::int64_t> sums(9 * 512);
  std::vector<std::uint8_t> failed(9);
  const auto slab_of = [&](std::uint16_t expert) { return layer_.experts[expert].view(); };
  EXPECT_DEATH(
      static_cast<void>(executor_.run(call_.kernels, slab_of, batch, {sums.data(), 512, 24}, failed, test::kAlways)),
      "activation class");
}

// ---- choice of kernels ----------------------------------------------------------------------------------------------

TEST(SelectExpertKernels, ClassesFollowTheTypesOrAreF32) {
  const ExpertShape shape{kQ4_K, kQ8_0, kF16, 512, 256};
  const ExpertKernels quantised = kernels_of(shape, Isa::kScalar);
  EXPECT_EQ(quantised.gate_class(), ActivationClass::kA8x256);
  EXPECT_EQ(quantised.up_class(), ActivationClass::kA8x32);
  EXPECT_EQ(quantised.down_class(), ActivationClass::kF32);
  const ExpertKernels floats = kernels_of(shape, Isa::kScalar, Activations::kF32);
  EXPECT_EQ(floats.gate_class(), ActivationClass::kF32);
  EXPECT_EQ(floats.up_class(), ActivationClass::kF32);
}

TEST(SelectExpertKernels, UnsupportedType_NamesPartAndType) {
  const auto kernels =
      select_expert_kernels({kQ4_K, kQ4_K, TensorType::kIQ1_M, 512, 256}, {}, std::nullopt, Activations::kQuantised);
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(kernels.error().text().find("down"), std::string::npos) << kernels.error().text();
  EXPECT_NE(kernels.error().text().find("IQ1_M"), std::string::npos) << kernels.error().text();
}

TEST(SelectExpertKernels, RowThatIsNoMultipleOfItsBlocks_IsRefused) {
  for (const ExpertShape& shape :
       {ExpertShape{kQ4_K, kQ4_K, kQ6_K, 512, 300}, ExpertShape{kQ4_K, kQ8_0, kQ8_0, 288, 256},
        ExpertShape{kQ8_0, kQ8_0, kQ8_0, 0, 256}}) {
    const auto kernels = select_expert_kernels(shape, {}, std::nullopt, Activations::kQuantised);
    ASSERT_FALSE(kernels.ok());
    EXPECT_EQ(kernels.error().code(), ErrorCode::kInvalidArgument) << kernels.error().text();
  }
}

}  // namespace
}  // namespace terrace::kernels
