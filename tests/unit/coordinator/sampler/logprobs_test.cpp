#include "coordinator/sampler/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace terrace::sampler {
namespace logprobs_test {

using ::testing::HasSubstr;

const kernels::Ops& ops() { return kernels::all_ops().front(); }

TEST(Logprobs, RandomLogits_AreNearTheSoftmaxInLongDouble) {
  std::mt19937 random(5);
  Logprobs found;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 2000);
    for (float& l : logits) l = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0.02f;
    const auto chosen = static_cast<std::int32_t>(random() % logits.size());
    const std::size_t n_top = random() % 25;
    ASSERT_TRUE(find_logprobs(logits, chosen, n_top, ops(), found).ok());

    long double total = 0;
    for (const float l : logits) total += std::exp(static_cast<long double>(l));
    const auto expected = [&](std::int32_t id) {
      return static_cast<double>(static_cast<long double>(logits[static_cast<std::size_t>(id)]) - std::log(total));
    };
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; });
    ASSERT_EQ(found.top.size(), std::min(n_top, logits.size())) << "seed 5, round " << round;
    // EXP is within 7.6e-8 of the exponential, so is the sum; its logarithm moves by as much.
    constexpr double kError = 1e-7;
    for (std::size_t i = 0; i < found.top.size(); ++i) {
      ASSERT_EQ(found.top[i].token, order[i]) << "seed 5, round " << round << ", place " << i;
      ASSERT_NEAR(found.top[i].logprob, expected(order[i]), kError);
    }
    EXPECT_EQ(found.chosen.token, chosen);
    ASSERT_NEAR(found.chosen.logprob, expected(chosen), kError);
  }
}

TEST(Logprobs, OneCertainToken_HasProbabilityOne) {
  Logprobs found;
  ASSERT_TRUE(find_logprobs(std::vector<float>{-500, 500, -500}, 0, 1, ops(), found).ok());
  EXPECT_EQ(found.top[0].token, 1);
  EXPECT_EQ(found.top[0].logprob, 0.0);
  EXPECT_EQ(found.chosen.logprob, -1000.0);
}

TEST(Logprobs, WrongInput_IsNamed) {
  Logprobs found;
  const std::vector<float> logits = {1, std::numeric_limits<float>::infinity()};
  const auto beyond = find_logprobs(logits, 2, 1, ops(), found);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(beyond.error().text(), HasSubstr("token 2; the vocabulary has 2 tokens"));
  const auto infinite = find_logprobs(logits, 0, 1, ops(), found);
  ASSERT_FALSE(infinite.ok());
  EXPECT_EQ(infinite.error().code(), ErrorCode::kNotFinite);
  EXPECT_THAT(infinite.error().text(), HasSubstr("token 1"));
}

}  // namespace logprobs_test
}  // namespace terrace::sampler
