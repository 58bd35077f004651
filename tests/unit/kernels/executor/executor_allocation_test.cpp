#include <gtest/gtest.h>

#include "tests/unit/count_allocations.h"
#include "tests/unit/kernels/executor/test_layer.h"
#include "tests/unit/kernels/executor/test_pool.h"

namespace terrace::kernels {
namespace {

TEST(ExecutorAllocation, NoneAfterTheLargestSliceWasSeen) {
  test::Rng rng(20);
  const test::Layer layer =
      test::Layer::random({TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ6_K, 512, 256}, 5, rng);
  const test::Rows rows = test::Rows::random(12, 512, rng);
  const auto all = test::random_pairs(12, 5, 3, rng), few = test::random_pairs(4, 5, 2, rng);
  const Ops ops = *select_ops(detect_cpu_features(), std::nullopt);
  test::TestPool pool(2);
  for (const Activations activations : {Activations::kQuantised, Activations::kF32}) {
    const test::Call call{layer, rows,
                          *select_expert_kernels(layer.shape, detect_cpu_features(), std::nullopt, activations)};
    Executor executor(pool, ops, 16);
    test::Outcome outcome;
    const std::size_t cold = test::allocations();
    ASSERT_TRUE(call.sums(executor, all, outcome).ok());
    EXPECT_GT(test::allocations(), cold) << "the counter does not count";
    ASSERT_TRUE(call.slots(executor, all, outcome).ok());

    const std::size_t warm = test::allocations();
    ASSERT_TRUE(call.sums(executor, all, outcome).ok());
    ASSERT_TRUE(call.sums(executor, few, outcome).ok());
    ASSERT_TRUE(call.slots(executor, few, outcome).ok());
    EXPECT_EQ(test::allocations(), warm);
  }
}

// A peer chooses how wide experts are and how many pairs a batch has.
TEST(ExecutorAllocation, WideExperts_ScratchStaysBelowItsBound) {
  test::Rng rng(21);
  const test::Layer layer =
      test::Layer::random({TensorType::kQ8_0, TensorType::kQ8_0, TensorType::kQ8_0, 32, 65'536}, 1, rng);
  const test::Rows rows = test::Rows::random(512, 32, rng);
  const auto pairs = test::random_pairs(512, 1, 1, rng);
  const Ops ops = *select_ops(detect_cpu_features(), std::nullopt);
  Serial serial;
  const auto kernels =
      *select_expert_kernels(layer.shape, detect_cpu_features(), std::nullopt, Activations::kQuantised);
  Executor executor(serial, ops);
  int slices = 1;
  std::vector<std::int64_t> sums(512 * 32);
  std::vector<std::uint8_t> failed(512);
  const auto slab_of = [&](std::uint16_t expert) { return layer.experts[expert].view(); };
  const auto ran = executor.run(kernels, slab_of, rows.batch(kernels, pairs), {sums.data(), 32, 24}, failed,
                                [&] { return ++slices > 0; });
  ASSERT_TRUE(ran.ok()) << ran.error().text();
  EXPECT_LE(Executor::scratch_bytes(kernels, 1), Executor::kMaxScratchBytes);
  EXPECT_GE(slices, 3) << "512 pairs of 65,536 floats are 128 MiB";
}

}  // namespace
}  // namespace terrace::kernels
