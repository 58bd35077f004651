// Masks and biases: what is no candidate is as if the vocabulary did not have it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <set>

#include "coordinator/sampler/sampler.h"

namespace terrace::sampler {
namespace candidates_test {

using ::testing::HasSubstr;
using Logits = std::vector<float>;
using Mask = std::vector<std::uint64_t>;

const kernels::Ops& ops() { return kernels::all_ops().front(); }

Mask mask_of(const std::set<std::int32_t>& tokens, std::size_t vocab_size) {
  Mask mask((vocab_size + 63) / 64);
  for (const std::int32_t id : tokens) mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << id % 64;
  return mask;
}

// Random options, logits with ties, history: a request.
struct Request {
  SamplingOptions options;
  Logits logits;
  std::vector<std::int32_t> history;
  std::uint64_t index = 0;
};

Request random_request(std::mt19937& random) {
  const auto pick = [&random](auto... values) {
    const std::array list{values...};
    return list[random() % list.size()];
  };
  Request r;
  r.options.temperature = pick(0.0f, 0.7f, 1.5f);
  r.options.top_k = pick(0, 1, 5, 40);
  r.options.top_p = pick(0.5f, 0.95f, 1.0f, 1.0f);
  r.options.min_p = pick(0.0f, 0.05f, 0.5f);
  r.options.repeat_penalty = pick(1.0f, 1.3f);
  r.options.presence_penalty = pick(0.0f, 0.7f);
  r.options.frequency_penalty = pick(0.0f, 0.3f);
  r.options.seed = random();
  r.logits.resize(1 + random() % 200);
  for (float& l : r.logits) l = static_cast<float>(static_cast<int>(random() % 17) - 8) * 0.5f;
  r.history.resize(random() % 10);
  for (auto& id : r.history) id = static_cast<std::int32_t>(random() % r.logits.size());
  r.index = random();
  return r;
}

std::int32_t sample(const Request& r, const Mask& mask = {}, std::vector<LogitBias> biases = {}) {
  Sampler sampler(r.options, r.logits.size(), ops(), std::move(biases));
  const auto token = sampler.sample(r.logits, r.index, r.history, mask);
  EXPECT_TRUE(token.ok()) << token.error().text();
  return token.ok() ? *token : -1;
}

TEST(SamplerMask, OfAllTokens_ChoosesAsNoMaskDoes) {
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    const Request r = random_request(random);
    std::set<std::int32_t> all;
    for (std::size_t id = 0; id < r.logits.size(); ++id) all.insert(static_cast<std::int32_t>(id));
    ASSERT_EQ(sample(r, mask_of(all, r.logits.size())), sample(r)) << "seed 11, round " << round;
  }
}

// The same choice from a vocabulary that has only the candidates, renumbered.
TEST(SamplerMask, TokensOutsideIt_AreAsIfTheVocabularyHadThemNot) {
  std::mt19937 random(12);
  std::set<std::size_t> sizes;
  for (int round = 0; round < 2000; ++round) {
    const Request r = random_request(random);
    std::set<std::int32_t> tokens = {static_cast<std::int32_t>(random() % r.logits.size())};
    for (std::size_t id = 0; id < r.logits.size(); ++id)
      if (random() % 3 == 0) tokens.insert(static_cast<std::int32_t>(id));
    Request small = r;
    small.logits.clear();
    small.history.clear();
    const std::vector<std::int32_t> ids(tokens.begin(), tokens.end());
    for (const std::int32_t id : ids) small.logits.push_back(r.logits[static_cast<std::size_t>(id)]);
    for (const std::int32_t id : r.history)
      if (tokens.contains(id))
        small.history.push_back(static_cast<std::int32_t>(std::ranges::find(ids, id) - ids.begin()));
    ASSERT_EQ(sample(r, mask_of(tokens, r.logits.size())), ids[static_cast<std::size_t>(sample(small))])
        << "seed 12, round " << round;
    sizes.insert(tokens.size());
  }
  EXPECT_GT(sizes.size(), 30u);
}

TEST(SamplerMask, WithoutCandidates_IsAnErrorWithItsCause) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler({.temperature = temperature}, 3, ops(), {{.token = 1, .bias = LogitBias::kBan}});
    const Logits logits = {1, 2, 3};
    for (const Mask& mask : {Mask{0}, Mask{0b010}}) {
      const auto token = sampler.sample(logits, 0, {}, mask);
      ASSERT_FALSE(token.ok());
      EXPECT_EQ(token.error().code(), ErrorCode::kRefused);
      EXPECT_THAT(token.error().text(), HasSubstr("the grammar and logit_bias allow no token"));
    }
    EXPECT_EQ(sampler.sample(logits, 0, {}, Mask{0b011}).value(), 0);
  }
}

TEST(LogitBias, IsAddedBeforePenaltiesAndSorting) {
  const Request greedy{{}, {1.0f, 2.0f, 3.0f}, {}, 0};
  EXPECT_EQ(sample(greedy, {}, {{.token = 0, .bias = 2.5f}}), 0);
  EXPECT_EQ(sample(greedy, {}, {{.token = 2, .bias = -1.5f}}), 1);
  EXPECT_EQ(sample(greedy, {}, {{.token = 2, .bias = LogitBias::kBan}}), 1);
  EXPECT_EQ(sample(greedy, {}, {{.token = 2, .bias = -100.0f}, {.token = 1, .bias = -100.0f}}), 0);
  EXPECT_EQ(sample(greedy, Mask{0b011}, {{.token = 2, .bias = 50.0f}}), 1);
  // -1 + 3 = 2 is divided by the penalty; a penalty before the bias would give -2 + 3 = 1.
  const Request penalised{{.repeat_penalty = 2.0f}, {-1.0f, 1.5f, 0.9f}, {0, 1}, 0};
  EXPECT_EQ(sample(penalised, {}, {{.token = 0, .bias = 3.0f}}), 0);
}

TEST(LogitBias, EqualsLogitsThatHaveItAlready) {
  std::mt19937 random(13);
  for (int round = 0; round < 1000; ++round) {
    const Request r = random_request(random);
    Request biased = r;
    std::vector<LogitBias> biases;
    for (std::size_t id = 0; id < r.logits.size(); id += 1 + random() % 20) {
      biases.push_back({static_cast<std::int32_t>(id), static_cast<float>(random() % 9) - 4.0f});
      biased.logits[id] += biases.back().bias;
    }
    ASSERT_EQ(sample(r, {}, biases), sample(biased)) << "seed 13, round " << round;
  }
}

TEST(LogitBias, BanOfEverything_IsAnError) {
  Sampler sampler({}, 2, ops(), {{.token = 0, .bias = -100}, {.token = 1, .bias = -100}});
  const auto token = sampler.sample(Logits{1, 2}, 0, {});
  ASSERT_FALSE(token.ok());
  EXPECT_THAT(token.error().text(), HasSubstr("logit_bias bans every token"));
}

TEST(LogitBias, OutOfRange_IsRefusedByName) {
  const auto refused = [](std::vector<LogitBias> biases, const char* part) {
    const Status status = validate(biases, 10);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().text(), HasSubstr(part));
  };
  refused({{.token = 10, .bias = 1}}, "token 10; the vocabulary has 0 to 9");
  refused({{.token = -1, .bias = 1}}, "token -1");
  refused({{.token = 3, .bias = 100.5f}}, "token 3 is 100.5; allowed is -100 to 100");
  refused({{.token = 3, .bias = std::numeric_limits<float>::quiet_NaN()}}, "token 3 is nan");
  refused({{.token = 3, .bias = 1}, {.token = 3, .bias = 2}}, "token 3 twice");
  EXPECT_TRUE(validate(std::vector<LogitBias>{{3, -100}, {9, 100}}, 10).ok());
}

}  // namespace candidates_test
}  // namespace terrace::sampler
