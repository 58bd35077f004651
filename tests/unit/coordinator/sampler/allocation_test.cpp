// Counts every allocation of this program, to hold sampler.h to its word.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <vector>

#include "coordinator/sampler/sampler.h"

namespace {

std::atomic<std::size_t> n_allocations{0};

void exp_rough(const float* x, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = std::exp(x[i]);
}

}  // namespace

// Not inlined: the compiler would see malloc's memory given to delete, or new's to free, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++n_allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace terrace::sampler {
namespace {

TEST(Sampler, AfterConstruction_NothingIsAllocated) {
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  const std::vector<std::int32_t> history = {1, 2, 3, 2};
  const SamplingOptions cases[] = {{},
                                   {.presence_penalty = 0.5f},
                                   {.temperature = 0.8f},
                                   {.temperature = 0.8f, .repeat_penalty = 1.1f, .repeat_last_n = -1},
                                   {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f},
                                   {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.1f}};
  for (const SamplingOptions& options : cases) {
    Sampler sampler(options, logits.size(), exp_rough);
    const std::size_t before = n_allocations;
    for (std::uint64_t index = 0; index < 5; ++index) ASSERT_TRUE(sampler.sample(logits, index, history).ok());
    EXPECT_EQ(n_allocations - before, 0u);
  }
  EXPECT_GT(n_allocations, 0u);  // the counter counts
}

}  // namespace
}  // namespace terrace::sampler
