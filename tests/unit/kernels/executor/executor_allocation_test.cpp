// Counts allocations of the whole program, so it is a program of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/kernels/executor/test_layer.h"
#include "tests/unit/kernels/executor/test_pool.h"

namespace {
std::atomic<std::size_t> allocations = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

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
    const std::size_t cold = allocations;
    ASSERT_TRUE(call.sums(executor, all, outcome).ok());
    EXPECT_GT(allocations, cold) << "the counter does not count";
    ASSERT_TRUE(call.slots(executor, all, outcome).ok());

    const std::size_t warm = allocations;
    ASSERT_TRUE(call.sums(executor, all, outcome).ok());
    ASSERT_TRUE(call.sums(executor, few, outcome).ok());
    ASSERT_TRUE(call.slots(executor, few, outcome).ok());
    EXPECT_EQ(allocations, warm);
  }
}

}  // namespace
}  // namespace terrace::kernels
