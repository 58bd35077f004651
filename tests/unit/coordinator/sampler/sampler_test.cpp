#include "coordinator/sampler/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "coordinator/sampler/philox.h"

namespace terrace::sampler {
namespace sampler_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using History = std::vector<std::int32_t>;
using Logits = std::vector<float>;

const kernels::Ops& ops() { return kernels::all_ops().front(); }

float exp_of(float x) {
  float y = 0;
  ops().exp(&x, 1, &y);
  return y;
}

// No filter and no penalty: the whole softmax.
SamplingOptions open_options() { return {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f}; }

std::int32_t sample(const SamplingOptions& options, const Logits& logits, const History& history = {},
                    std::uint64_t index = 0) {
  return Sampler(options, logits.size(), ops()).sample(logits, index, history).value();
}

// Every token that comes up in n draws, how often.
std::map<std::int32_t, int> draw(const SamplingOptions& options, const Logits& logits, int n = 2000) {
  Sampler sampler(options, logits.size(), ops());
  std::map<std::int32_t, int> counts;
  for (int index = 0; index < n; ++index)
    ++counts[sampler.sample(logits, static_cast<std::uint64_t>(index), {}).value()];
  return counts;
}

std::vector<std::int32_t> drawn(const SamplingOptions& options, const Logits& logits) {
  std::vector<std::int32_t> tokens;
  for (const auto& [token, count] : draw(options, logits)) tokens.push_back(token);
  return tokens;
}

// The definition in sampler.h as it stands: everything sorted, everything weighed.
std::int32_t sample_by_definition(const SamplingOptions& o, Logits logits, std::uint64_t index,
                                  const History& history) {
  std::map<std::int32_t, int> counts;
  const std::size_t n_history = o.repeat_last_n < 0
                                    ? history.size()
                                    : std::min<std::size_t>(history.size(), static_cast<std::size_t>(o.repeat_last_n));
  for (std::size_t i = history.size() - n_history; i < history.size(); ++i) ++counts[history[i]];
  for (const auto& [id, count] : counts) {
    float& l = logits[static_cast<std::size_t>(id)];
    l = l > 0 ? l / o.repeat_penalty : l * o.repeat_penalty;
    const float frequency = static_cast<float>(count) * o.frequency_penalty;
    l = l - (frequency + o.presence_penalty);
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&logits](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return logit(a) > logit(b); });
  if (o.temperature == 0) return order[0];
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(o.top_k)));

  const float best = logit(order[0]);
  double total = 0, reached = 0;
  for (const std::int32_t id : order) total += static_cast<double>(exp_of(logit(id) - best));
  std::size_t kept = 0;
  if (o.top_p < 1) {
    do reached += static_cast<double>(exp_of(logit(order[kept++]) - best));
    while (kept < order.size() && reached < static_cast<double>(o.top_p) * total);
    order.resize(kept);
  }
  for (kept = 1; kept < order.size() && exp_of(logit(order[kept]) - best) >= o.min_p;) ++kept;
  order.resize(kept);

  total = reached = 0;
  for (const std::int32_t id : order) total += static_cast<double>(exp_of((logit(id) - best) / o.temperature));
  const auto words = philox4x32_10({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
                                   {static_cast<std::uint32_t>(o.seed), static_cast<std::uint32_t>(o.seed >> 32)});
  const double u = std::ldexp(static_cast<double>((static_cast<std::uint64_t>(words[1]) << 32 | words[0]) >> 11), -53);
  for (const std::int32_t id : order) {
    reached += static_cast<double>(exp_of((logit(id) - best) / o.temperature));
    if (reached > u * total) return id;
  }
  return order.back();
}

TEST(Sampler, RandomLogitsAndOptions_EqualTheDefinition) {
  constexpr unsigned kSeed = 1234;
  std::mt19937 random(kSeed);
  const auto pick = [&random](auto... values) {
    const std::array list{values...};
    return list[random() % list.size()];
  };
  std::set<std::int32_t> seen;
  for (int round = 0; round < 4000; ++round) {
    SamplingOptions o;
    o.temperature = pick(0.0f, 0.3f, 1.0f, 1.7f, 1e-40f, 50.0f);
    o.top_k = pick(0, 1, 5, 40, 1000);
    o.top_p = pick(0.0f, 0.5f, 0.95f, 1.0f, 1.0f);
    o.min_p = pick(0.0f, 0.05f, 0.5f, 1.0f, 1e-39f, 1e-12f);
    o.repeat_penalty = pick(1.0f, 1.0f, 1.3f, 0.8f);
    o.presence_penalty = pick(0.0f, 0.0f, 0.7f, -0.2f);
    o.frequency_penalty = pick(0.0f, 0.0f, 0.3f);
    o.repeat_last_n = pick(64, 0, -1, 3);
    o.seed = random() | static_cast<std::uint64_t>(random()) << 32;
    Logits logits(1 + random() % 200);
    // Few distinct values give ties; -0 and 0 among them. Now and then a span far beyond EXP's clamp.
    const float step = pick(0.125f, 1.0f, 30.0f, 1e37f);
    for (float& l : logits) l = static_cast<float>(static_cast<int>(random() % 17) - 8) * (random() % 2 ? step : -step);
    History history(random() % 10);
    for (auto& id : history) id = static_cast<std::int32_t>(random() % logits.size());
    const std::uint64_t index = random();
    Sampler sampler(o, logits.size(), ops());
    const auto found = sampler.sample(logits, index, history);
    ASSERT_TRUE(found.ok()) << found.error().text();
    ASSERT_EQ(*found, sample_by_definition(o, logits, index, history)) << "seed " << kSeed << ", round " << round;
    seen.insert(*found);
  }
  EXPECT_GT(seen.size(), 50u);
}

TEST(Sampler, Greedy_TakesTheLargestAndOfEqualsTheLowestId) {
  EXPECT_EQ(sample({}, {1, 3, 2, 3}), 1);
  EXPECT_EQ(sample({}, {-0.0f, 0.0f}), 0);
  EXPECT_EQ(sample({}, {-5, -4}), 1);
  SamplingOptions penalised{.presence_penalty = 0.5f};
  EXPECT_EQ(sample(penalised, {-0.0f, 0.0f, 0.25f}, {2}), 0);
  EXPECT_EQ(sample(penalised, {1, 3, 2, 3}, {0}), 1);
}

TEST(Sampler, Greedy_IsTheDefault) { EXPECT_EQ(draw({}, {1, 1.001f, 1}).size(), 1u); }

// Who has found the largest logit elsewhere asks this.
TEST(Sampler, TakesLargest_OnlyWhereNothingElseCouldBeChosen) {
  const auto takes = [](const SamplingOptions& options, std::vector<LogitBias> biases = {}) {
    return Sampler(options, 3, ops(), std::move(biases)).takes_largest();
  };
  EXPECT_TRUE(takes({}));
  EXPECT_FALSE(takes({.temperature = 0.5f}));
  EXPECT_FALSE(takes({.repeat_penalty = 1.1f}));
  EXPECT_FALSE(takes({.presence_penalty = 0.1f}));
  EXPECT_FALSE(takes({.frequency_penalty = 0.1f}));
  EXPECT_TRUE(takes({.repeat_penalty = 1.1f, .repeat_last_n = 0}));
  EXPECT_FALSE(takes({}, {{.token = 1, .bias = 2.0f}}));
  const std::uint64_t mask[] = {7};
  EXPECT_FALSE(Sampler({}, 3, ops()).takes_largest(mask));
}

TEST(Sampler, TopK_KeepsTheFirstK) {
  SamplingOptions o = open_options();
  o.top_k = 2;
  EXPECT_THAT(drawn(o, {1, 2, 1.5f, 0}), ElementsAre(1, 2));
  EXPECT_THAT(drawn(o, {1, 1, 1, 1}), ElementsAre(0, 1));
  o.top_k = 1;
  EXPECT_THAT(drawn(o, {1, 2, 2, 0}), ElementsAre(1));
}

TEST(Sampler, TopP_KeepsTheShortestBeginningThatReachesIt) {
  const Logits logits = {std::log(0.2f), std::log(0.5f), std::log(0.2f), std::log(0.1f)};
  SamplingOptions o = open_options();
  o.top_p = 0.45f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(1));
  o.top_p = 0.65f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(0, 1));
  o.top_p = 0.85f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(0, 1, 2));
  o.top_p = 0.0f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(1));
}

TEST(Sampler, MinP_KeepsWhatIsNotFarBelowTheBest) {
  const Logits logits = {std::log(0.2f), std::log(0.5f), std::log(0.19f), std::log(0.11f)};
  SamplingOptions o = open_options();
  o.min_p = 0.39f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(0, 1));
  o.min_p = 0.3f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(0, 1, 2));
  o.min_p = 1.0f;
  EXPECT_THAT(drawn(o, logits), ElementsAre(1));
}

TEST(Sampler, FiltersLookAtTheDistributionBeforeTheTemperature) {
  SamplingOptions o = open_options();
  o.min_p = 0.3f;
  o.temperature = 100.0f;  // would lift every token above min_p
  EXPECT_THAT(drawn(o, {0, 2, 1}), ElementsAre(1, 2));
}

TEST(Sampler, Penalties_ByTheirFormulas) {
  // 4 / 2 = 2 and -1 * 2 = -2: the largest left is token 2.
  EXPECT_EQ(sample({.repeat_penalty = 2.0f}, {4, -1, 2.5f}, {0, 1}), 2);
  EXPECT_EQ(sample({.repeat_penalty = 2.0f}, {-1, -1.5f}, {0}), 1);
  // Presence counts once, frequency each time.
  EXPECT_EQ(sample({.presence_penalty = 1.0f}, {4, 2.5f}, {0, 0, 0}), 0);
  EXPECT_EQ(sample({.frequency_penalty = 1.0f}, {4, 2.5f}, {0, 0, 0}), 1);
  EXPECT_EQ(sample({.frequency_penalty = 1.0f}, {4, 2.5f}, {0}), 0);
  // Only the last places count; -1 is all, 0 none.
  EXPECT_EQ(sample({.presence_penalty = 3.0f, .repeat_last_n = 2}, {4, 2.5f, 0}, {0, 2, 2}), 0);
  EXPECT_EQ(sample({.presence_penalty = 3.0f, .repeat_last_n = 3}, {4, 2.5f, 0}, {0, 2, 2}), 1);
  EXPECT_EQ(sample({.presence_penalty = 3.0f, .repeat_last_n = -1}, {4, 2.5f, 0}, {0, 2, 2}), 1);
  EXPECT_EQ(sample({.presence_penalty = 3.0f, .repeat_last_n = 0}, {4, 2.5f, 0}, {0, 2, 2}), 0);
}

TEST(Sampler, PenaltyCounts_AreForgottenBetweenCalls) {
  Sampler sampler({.frequency_penalty = 1.0f}, 2, ops());
  const Logits logits = {4, 2.5f};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sampler.sample(logits, 0, History{0}).value(), 0);
}

// Each count is binomial; five standard deviations are left once in 1.7 million draws of a seed.
TEST(Sampler, Distribution_IsTheSoftmaxWithTemperature) {
  constexpr int kDraws = 40000;
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingOptions o = open_options();
    o.temperature = temperature;
    o.seed = 5;
    const Logits logits = {0.5f, -1, 2, 1.25f, 0};
    const auto counts = draw(o, logits, kDraws);
    double total = 0;
    for (const float l : logits) total += std::exp(static_cast<double>(l) / temperature);
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const double p = std::exp(static_cast<double>(logits[id]) / temperature) / total;
      EXPECT_NEAR(counts.at(static_cast<std::int32_t>(id)), kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)))
          << "token " << id << ", temperature " << temperature << ", seed " << o.seed;
    }
  }
}

TEST(Sampler, Draw_DependsOnSeedAndIndexOnly) {
  const Logits logits(1000, 0.0f);
  SamplingOptions o = open_options();
  Sampler first(o, logits.size(), ops()), second(o, logits.size(), ops());
  for (std::uint64_t index = 0; index < 100; ++index) (void)first.sample(logits, index, {});
  EXPECT_EQ(first.sample(logits, 7, {}).value(), second.sample(logits, 7, {}).value());
  EXPECT_NE(sample(o, logits, {}, 7), sample(o, logits, {}, 8));
  EXPECT_NE(sample(o, logits, {}, 7), sample(o, logits, {}, std::uint64_t{7} << 32));
  o.seed = std::uint64_t{1} << 32;
  EXPECT_NE(sample(o, logits, {}, 7), sample(open_options(), logits, {}, 7));
}

TEST(Sampler, NotFiniteLogit_IsNamed) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const float temperature : {0.0f, 1.0f}) {
      const Logits logits = {0, 1, bad};
      const auto result = Sampler({.temperature = temperature}, 3, ops()).sample(logits, 0, {});
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code(), ErrorCode::kNotFinite);
      EXPECT_THAT(result.error().text(), HasSubstr("token 2"));
    }
  }
  Sampler sampler({.repeat_penalty = 1e30f}, 2, ops());
  const auto overflow = sampler.sample(Logits{-1e30f, 0}, 0, History{0, 0});
  ASSERT_FALSE(overflow.ok());
  EXPECT_THAT(overflow.error().text(), AllOf(HasSubstr("token 0"), HasSubstr("penalties")));
  EXPECT_EQ(sampler.sample(Logits{1, 0}, 0, History{1}).value(), 0);  // and the next call begins anew
}

TEST(Sampler, HistoryBeyondTheVocabulary_IsAnError) {
  for (const std::int32_t id : {-1, 3}) {
    const auto result = Sampler({.presence_penalty = 1.0f}, 3, ops()).sample(Logits{1, 2, 3}, 0, History{0, id});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(SamplingOptions, OutOfRange_NamesTheFlag) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const std::pair<SamplingOptions, const char*> cases[] = {
      {{.temperature = -0.1f}, "--temperature is -0.1"},
      {{.temperature = kNan}, "--temperature"},
      {{.temperature = kInf}, "--temperature"},
      {{.top_k = -1}, "--top-k is -1"},
      {{.top_p = 1.1f}, "--top-p is 1.1"},
      {{.top_p = kNan}, "--top-p"},
      {{.min_p = -0.1f}, "--min-p"},
      {{.min_p = kNan}, "--min-p"},
      {{.repeat_penalty = 0.0f}, "--repeat-penalty"},
      {{.repeat_penalty = kNan}, "--repeat-penalty"},
      {{.presence_penalty = kInf}, "--presence-penalty"},
      {{.frequency_penalty = kNan}, "--frequency-penalty"},
      {{.repeat_last_n = -2}, "--repeat-last-n"},
  };
  for (const auto& [options, says] : cases) {
    const Status status = validate(options);
    ASSERT_FALSE(status.ok()) << says;
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().text(), AllOf(HasSubstr(says), HasSubstr("allowed")));
  }
  EXPECT_TRUE(validate({}).ok());
  EXPECT_TRUE(validate({.temperature = 1e-40f, .top_k = 0, .top_p = 0.0f, .min_p = 1.0f, .repeat_last_n = -1}).ok());
}

}  // namespace sampler_test
}  // namespace terrace::sampler
