// The trunk's single operations in the shape of Qwen3-30B-A3B, for rows 1 to 9, 64, 65 and 512, against the scalar
// table of kernels/cpu/ops by bits.
#include <gmock/gmock.h>

#include <random>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/combine/combine.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/greedy/greedy.h"
#include "kernels/cuda/router/router.h"
#include "tests/gpu/card_test.h"
#include "tests/gpu/large_model.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace::kernels::cuda {
namespace {

namespace large = test::large_model;

constexpr unsigned kLargeSeed = 20293;
constexpr float kEps = 1e-6f;

class CardLargeOps : public test::CardTest {
 protected:
  std::vector<float> random(std::size_t n, float scale = 1.0f) { return test::bell_values(rng_, n, scale); }
  const Ops& scalar() const { return test::scalar_ops(); }
  static std::string rows(std::uint32_t n) { return std::to_string(n) + " rows, seed " + std::to_string(kLargeSeed); }
  // The first n of `values`.
  template <class T>
  static std::vector<T> first(const std::vector<T>& values, std::size_t n) {
    return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n)};
  }

  std::mt19937 rng_{kLargeSeed};
};

TEST_F(CardLargeOps, NormsOfRowsAndOfHeads_EqualReference) {
  for (const auto& [width, a_row] : {std::pair{large::kWidth, 1u}, std::pair{large::kHeadDim, large::kHeads}}) {
    const std::size_t most = std::size_t{large::kMostRows} * a_row;
    const std::vector<float> x = random(most * width), w = random(width);
    std::vector<float> expected(x.size());
    for (std::size_t i = 0; i < most; ++i)
      scalar().rms_norm(&x[i * width], w.data(), width, kEps, &expected[i * width]);
    const float* card_w = upload(w);
    for (const std::uint32_t n : large::kRows) {
      float* card_x = upload(first(x, std::size_t{n} * a_row * width));
      ASSERT_OK(rms_norm(stream(), {card_x, width, card_w, card_x, width, n * a_row, width, kEps}));
      const auto got = download(card_x, std::size_t{n} * a_row * width);
      EXPECT_EQUAL_FLOATS(got, first(expected, got.size()), rows(n));
    }
  }
}

TEST_F(CardLargeOps, TurnedHeads_EqualReference) {
  constexpr std::uint32_t kPairs = large::kHeadDim / 2;
  std::vector<float> x = random(std::size_t{large::kMostRows} * large::kQueries);
  std::vector<float> cosines(large::kMostRows * kPairs), sines(large::kMostRows * kPairs);
  for (std::uint32_t row = 0; row < large::kMostRows; ++row)
    rope_table(77 * row + 5, large::kHeadDim, 1e6, {}, &cosines[row * kPairs], &sines[row * kPairs]);
  const float *card_cosines = upload(cosines), *card_sines = upload(sines);
  std::vector<float> expected(x);
  for (std::size_t head = 0; head < std::size_t{large::kMostRows} * large::kHeads; ++head)
    scalar().rope(&expected[head * large::kHeadDim], &cosines[head / large::kHeads * kPairs],
                  &sines[head / large::kHeads * kPairs], large::kHeadDim, RopePairing::kNeox);
  for (const std::uint32_t n : large::kRows) {
    float* card_x = upload(first(x, std::size_t{n} * large::kQueries));
    ASSERT_OK(rope(stream(), {card_x, large::kQueries, n, large::kHeads, large::kHeadDim, large::kHeadDim, card_cosines,
                              card_sines, RopePairing::kNeox}));
    const auto got = download(card_x, std::size_t{n} * large::kQueries);
    EXPECT_EQUAL_FLOATS(got, first(expected, got.size()), rows(n));
  }
}

TEST_F(CardLargeOps, QuantisedRows_EqualReferenceInEveryClass) {
  for (const std::uint32_t width : {large::kWidth, large::kQueries, large::kExpertWidth})
    for (const ActivationClass activation : {ActivationClass::kA8x32, ActivationClass::kA8x256}) {
      const std::vector<float> x = random(std::size_t{large::kMostRows} * width);
      const std::size_t stride = row_bytes(activation, width);
      std::vector<std::byte> expected(large::kMostRows * stride);
      for (std::uint32_t row = 0; row < large::kMostRows; ++row)
        scalar().quantize_row(activation, &x[std::size_t{row} * width], width, &expected[row * stride]);
      const float* card_x = upload(x);
      for (const std::uint32_t n : large::kRows) {
        std::byte* out = room<std::byte>(n * stride);
        ASSERT_OK(quantize_rows(stream(), {activation, card_x, width, n, width, out, stride}));
        EXPECT_TRUE(download(out, n * stride) == first(expected, n * stride)) << name(activation) << ", " << rows(n);
      }
    }
}

TEST_F(CardLargeOps, SiluOfPairs_EqualsReference) {
  const std::size_t most = std::size_t{large::kMostRows} * large::kTopK * large::kExpertWidth;
  const std::vector<float> gate = random(most, 3.0f), up = random(most);
  std::vector<float> expected(most);
  scalar().silu_mul(gate.data(), up.data(), most, expected.data());
  const float *card_gate = upload(gate), *card_up = upload(up);
  for (const std::uint32_t n : large::kRows) {
    const std::size_t count = std::size_t{n} * large::kTopK * large::kExpertWidth;
    float* out = room<float>(count);
    ASSERT_OK(silu_mul(stream(), card_gate, card_up, count, out));
    EXPECT_EQUAL_FLOATS(download(out, count), first(expected, count), rows(n));
  }
}

TEST_F(CardLargeOps, ChoicesOfExperts_EqualReference) {
  std::vector<float> logits = random(large::kMostRows * large::kExperts, 2.0f);
  for (std::uint32_t i = 0; i < large::kExperts; ++i) logits[3 * large::kExperts + i] = static_cast<float>(i / 3);
  RouterRule rule;
  rule.top_k = large::kTopK;
  std::vector<std::uint16_t> ids(large::kMostRows * large::kTopK);
  std::vector<float> weights(ids.size()), scratch(2 * large::kExperts);
  for (std::uint32_t row = 0; row < large::kMostRows; ++row)
    kernels::route(&logits[row * large::kExperts], large::kExperts, rule, scalar().exp, scratch.data(),
                   &ids[row * large::kTopK], &weights[row * large::kTopK]);
  const float* card_logits = upload(logits);
  for (const std::uint32_t n : large::kRows) {
    auto* card_ids = room<std::uint16_t>(n * large::kTopK);
    auto* card_weights = room<float>(n * large::kTopK);
    ASSERT_OK(route(stream(), {card_logits, n, large::kExperts, rule, card_ids, card_weights}));
    EXPECT_EQ(download(card_ids, n * large::kTopK), first(ids, n * large::kTopK)) << rows(n);
    EXPECT_EQUAL_FLOATS(download(card_weights, n * large::kTopK), first(weights, n * large::kTopK), rows(n));
  }
}

TEST_F(CardLargeOps, SumsOverExperts_EqualReference) {
  constexpr int kShift = 24;
  constexpr std::uint32_t kOutputs = 1009;  // that pairs take turns to have: a prime number
  const std::uint32_t n_pairs = large::kMostRows * large::kTopK;
  const std::vector<float> out = random(std::size_t{kOutputs} * large::kWidth);
  const std::vector<float> weights = random(n_pairs, 0.2f);
  std::vector<float> x = random(std::size_t{large::kMostRows} * large::kWidth), moe(large::kWidth);
  std::vector<std::int32_t> slots(n_pairs);
  for (std::uint32_t i = 0; i < n_pairs; ++i) slots[i] = static_cast<std::int32_t>(7 * i % kOutputs);
  std::vector<std::int64_t> sums(x.size());
  std::vector<float> expected(x);
  for (std::uint32_t i = 0; i < n_pairs; ++i)
    ASSERT_TRUE(scalar().add_fixed(weights[i], &out[static_cast<std::size_t>(slots[i]) * large::kWidth], large::kWidth,
                                   kShift, &sums[std::size_t{i / large::kTopK} * large::kWidth]));
  for (std::size_t row = 0; row < large::kMostRows; ++row) {
    ASSERT_TRUE(scalar().from_fixed(&sums[row * large::kWidth], large::kWidth, kShift, moe.data()));
    scalar().add(&expected[row * large::kWidth], moe.data(), large::kWidth);
  }
  const float *card_out = upload(out), *card_weights = upload(weights);
  const std::int32_t* card_slots = upload(slots);
  for (const std::uint32_t n : large::kRows) {
    const std::size_t count = std::size_t{n} * large::kWidth;
    auto* card_sums = upload(std::vector<std::int64_t>(count));
    auto* failed = upload(std::vector<std::uint8_t>(n));
    ASSERT_OK(add_fixed(stream(), {card_out, large::kWidth, card_slots, card_weights, large::kTopK, n, large::kWidth,
                                   kShift, card_sums, failed}));
    EXPECT_TRUE(download(card_sums, count) == first(sums, count)) << rows(n);
    float* card_x = upload(first(x, count));
    ASSERT_OK(from_fixed(stream(), {card_sums, n, large::kWidth, kShift, card_x, true, failed}));
    EXPECT_EQUAL_FLOATS(download(card_x, count), first(expected, count), rows(n));
    EXPECT_THAT(download(failed, n), testing::Each(0));
  }
}

TEST_F(CardLargeOps, GreedyTokens_AreTheLargestLogitsOfTheirRows) {
  // Whole numbers: each row's largest is there more than once.
  std::uniform_int_distribution<int> some(0, 1 << 16);
  std::vector<float> logits(std::size_t{large::kMostRows} * large::kVocabulary);
  for (float& logit : logits) logit = static_cast<float>(some(rng_));
  std::vector<std::uint32_t> expected;
  for (std::size_t row = 0; row < large::kMostRows; ++row) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * large::kVocabulary);
    expected.push_back(static_cast<std::uint32_t>(std::max_element(begin, begin + large::kVocabulary) - begin));
  }
  const float* card_logits = upload(logits);
  for (const std::uint32_t n : large::kRows) {
    auto* best = upload(std::vector<GreedyKey>(n, kNoLogitSeen));
    ASSERT_OK(find_greedy(stream(), {card_logits, large::kVocabulary, n, large::kVocabulary, best}));
    std::vector<std::uint32_t> tokens;
    for (const GreedyKey key : download(best, n)) tokens.push_back(greedy_token(key).value());
    EXPECT_EQ(tokens, first(expected, n)) << rows(n);
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
