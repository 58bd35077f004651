// Counts every allocation of this program, to hold sampler.h to its word.
#include <gtest/gtest.h>

#include <vector>

#include "coordinator/sampler/sampler.h"
#include "tests/unit/count_allocations.h"

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
    Sampler sampler(options, logits.size(), kernels::all_ops().front());
    const std::size_t before = test::allocations();
    for (std::uint64_t index = 0; index < 5; ++index) ASSERT_TRUE(sampler.sample(logits, index, history).ok());
    EXPECT_EQ(test::allocations() - before, 0u);
  }
  EXPECT_GT(test::allocations(), 0u);  // the counter counts
}

}  // namespace
}  // namespace terrace::sampler
