// The trunk's operations on a card against the scalar table of kernels/cpu/ops, by bits; EXP and SILU against the
// contract's checksums.
#include <gmock/gmock.h>

#include <bit>
#include <random>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/combine/combine.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/greedy/greedy.h"
#include "kernels/cuda/router/router.h"
#include "kernels/cuda/weights/card_rows.h"
#include "tests/gpu/card_test.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned kSeed = 20273;
// tests/data/contract/index.json "exp".
constexpr std::uint64_t kExpChecksum = 0x3bd1d71d3986d6f8;
constexpr std::uint64_t kSiluChecksum = 0xc927e79cd68dc52f;

std::uint64_t checksum(std::span<const float> values) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += std::bit_cast<std::uint32_t>(values[i]) * (2 * i + 1);
  return sum;
}

class CardOps : public test::CardTest {
 protected:
  std::vector<float> random(std::size_t n, float scale = 1.0f) { return test::bell_values(rng_, n, scale); }
  const Ops& scalar() const { return test::scalar_ops(); }

  static void take_apart(ActivationClass activation, const std::byte* wire, std::uint32_t cols, std::byte* row) {
    const std::uint32_t n = block_values(activation);
    const CardRowLayout at = card_row_layout(n, cols);
    std::vector<std::int16_t> sums16(cols / 16), sums32(cols / 32);
    for (std::uint32_t i = 0; i < cols; ++i) {
      row[i] = wire[i / n * (n + 4) + 4 + i % n];
      const int q = static_cast<std::int8_t>(row[i]);
      sums16[i / 16] = static_cast<std::int16_t>(sums16[i / 16] + q);
      sums32[i / 32] = static_cast<std::int16_t>(sums32[i / 32] + q);
    }
    for (std::uint32_t c = 0; c < cols / n; ++c) std::memcpy(row + at.d + 4 * c, wire + c * (n + 4), 4);
    std::memcpy(row + at.sums16, sums16.data(), sums16.size() * 2);
    std::memcpy(row + at.sums32, sums32.data(), sums32.size() * 2);
  }

  std::mt19937 rng_{kSeed};
};

TEST_F(CardOps, ExpAndSilu_HaveTheContractsChecksums) {
  constexpr std::size_t kInputs = 1 << 20;
  std::vector<float> x(kInputs);
  for (std::size_t i = 0; i < kInputs; ++i)
    x[i] = static_cast<float>(static_cast<std::int64_t>(i) - (1 << 19)) * 0x1p-12f;
  const float* card_x = upload(x);
  float* y = room<float>(kInputs);
  ASSERT_OK(exp(stream(), card_x, kInputs, y));
  EXPECT_EQ(checksum(download(y, kInputs)), kExpChecksum);
  ASSERT_OK(silu(stream(), card_x, kInputs, y));
  EXPECT_EQ(checksum(download(y, kInputs)), kSiluChecksum);
}

TEST_F(CardOps, ExpAndSilu_OfExtremes_EqualReference) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f,   -0.0f,    87.0f,     -87.0f, 88.0f,   89.0f,        1e30f,
                                -1e30f, infinity, -infinity, 1e-40f, -1e-40f, std::nanf("")};
  std::vector<float> expected(x.size());
  const float* card_x = upload(x);
  float* y = room<float>(x.size());
  ASSERT_OK(exp(stream(), card_x, x.size(), y));
  scalar().exp(x.data(), x.size(), expected.data());
  EXPECT_SAME_FLOATS(download(y, x.size()), expected);
  ASSERT_OK(silu(stream(), card_x, x.size(), y));
  scalar().silu(x.data(), x.size(), expected.data());
  EXPECT_SAME_FLOATS(download(y, x.size()), expected);
}

TEST_F(CardOps, AddAndSiluMul_EqualReference) {
  const std::size_t n = 10007;
  std::vector<float> a = random(n, 3.0f);
  const std::vector<float> b = random(n);
  a[5] = 1e-42f;  // subnormals are kept
  float* x = upload(a);
  const float* y = upload(b);
  float* h = room<float>(n);
  std::vector<float> expected(n);
  ASSERT_OK(silu_mul(stream(), x, y, n, h));
  scalar().silu_mul(a.data(), b.data(), n, expected.data());
  EXPECT_SAME_FLOATS(download(h, n), expected);
  ASSERT_OK(add(stream(), x, y, n));
  scalar().add(a.data(), b.data(), n);
  EXPECT_SAME_FLOATS(download(x, n), a);
}

TEST_F(CardOps, RmsNorm_EqualsReferenceForRowsAndHeads) {
  for (const std::uint32_t n : {1u, 15u, 64u, 100u, 128u, 2048u, 4096u, kMaxNormValues}) {
    const std::uint32_t n_rows = 5;
    std::vector<float> x = random(std::size_t{n_rows} * n);
    const std::vector<float> w = random(n);
    float* card_x = upload(x);
    ASSERT_OK(rms_norm(stream(), {card_x, n, upload(w), card_x, n, n_rows, n, 1e-6f}));
    for (std::uint32_t row = 0; row < n_rows; ++row)
      scalar().rms_norm(&x[std::size_t{row} * n], w.data(), n, 1e-6f, &x[std::size_t{row} * n]);
    EXPECT_EQUAL_FLOATS(download(card_x, x.size()), x, "n " + std::to_string(n));
  }
}

TEST_F(CardOps, Rope_EqualsReferenceInBothPairings) {
  constexpr std::uint32_t kRows = 3, kHeads = 5, kDim = 128;
  for (const std::uint32_t n_rot : {128u, 64u})
    for (const RopePairing pairing : {RopePairing::kNeox, RopePairing::kAdjacent}) {
      std::vector<float> x = random(kRows * kHeads * kDim), cosines(kRows * n_rot / 2), sines(kRows * n_rot / 2);
      for (std::uint32_t row = 0; row < kRows; ++row)
        rope_table(1000 * row + 7, n_rot, 1e6, {}, &cosines[row * n_rot / 2], &sines[row * n_rot / 2]);
      float* card_x = upload(x);
      ASSERT_OK(
          rope(stream(), {card_x, kHeads * kDim, kRows, kHeads, kDim, n_rot, upload(cosines), upload(sines), pairing}));
      for (std::uint32_t i = 0; i < kRows * kHeads; ++i)
        scalar().rope(&x[i * kDim], &cosines[i / kHeads * n_rot / 2], &sines[i / kHeads * n_rot / 2], n_rot, pairing);
      EXPECT_SAME_FLOATS(download(card_x, x.size()), x);
    }
}

TEST_F(CardOps, QuantisedRows_EqualReferenceInEveryClass) {
  constexpr std::uint32_t kRows = 7;
  for (const std::uint32_t cols : {256u, 768u, 2048u, 2816u})
    for (const ActivationClass activation :
         {ActivationClass::kF32, ActivationClass::kA8x32, ActivationClass::kA8x256}) {
      std::vector<float> x = random(kRows * cols);
      for (std::uint32_t i = 0; i < cols; ++i) {
        x[cols + i] = i < 256 ? 0.0f : x[cols + i] * 0x1p-101f;  // zero blocks and blocks below 2^-100
        x[2 * cols + i] *= 1e30f;                                // large
        x[3 * cols + i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0.5f;  // halves between two codes
        x[4 * cols + i] *= 0x1p-99f;
      }
      const std::size_t stride = row_bytes(activation, cols);
      std::byte* out = room<std::byte>(kRows * stride);
      ASSERT_OK(quantize_rows(stream(), {activation, upload(x), cols, kRows, cols, out, stride}));
      std::vector<std::byte> expected(kRows * stride);
      for (std::uint32_t row = 0; row < kRows; ++row)
        scalar().quantize_row(activation, &x[std::size_t{row} * cols], cols, &expected[row * stride]);
      EXPECT_EQ(download(out, expected.size()), expected) << name(activation) << ", " << cols;
    }
}

// Card rows made here and of rows from elsewhere are the same, part by part what the wire's form says.
TEST_F(CardOps, CardRows_HoldValuesScalesAndSums) {
  constexpr std::uint32_t kRows = 3;
  for (const std::uint32_t cols : {256u, 768u, 2816u})
    for (const ActivationClass activation : {ActivationClass::kA8x32, ActivationClass::kA8x256}) {
      const std::vector<float> x = random(kRows * cols);
      const CardRowLayout at = card_row_layout(block_values(activation), cols);
      const std::size_t stride = row_bytes(activation, cols);
      std::vector<std::byte> wire(kRows * stride);
      for (std::uint32_t row = 0; row < kRows; ++row)
        scalar().quantize_row(activation, &x[std::size_t{row} * cols], cols, &wire[row * stride]);
      const std::vector<std::byte> blank(kRows * at.bytes);
      std::byte* here = upload(blank);
      std::byte* elsewhere = upload(blank);
      ASSERT_OK(quantize_card_rows(stream(), {activation, upload(x), cols, kRows, cols, here, at.bytes}));
      ASSERT_OK(make_card_rows(stream(), {activation, upload(wire), stride, kRows, cols, elsewhere, at.bytes}));
      const std::vector<std::byte> got = download(here, blank.size());
      EXPECT_EQ(download(elsewhere, blank.size()), got);
      std::vector<std::byte> expected = blank;
      for (std::uint32_t row = 0; row < kRows; ++row)
        take_apart(activation, &wire[row * stride], cols, &expected[row * at.bytes]);
      EXPECT_EQ(got, expected) << name(activation) << ", " << cols;
    }
}

TEST_F(CardOps, RowsThatAreNotFinite_AreMarkedAndOthersLeft) {
  constexpr std::uint32_t kRows = 6, kCols = 2048;
  std::vector<float> x = random(kRows * kCols);
  x[1 * kCols + 2047] = std::numeric_limits<float>::infinity();
  x[4 * kCols] = std::nanf("");
  x[5 * kCols] = std::numeric_limits<float>::max();
  std::uint8_t* failed = upload(std::vector<std::uint8_t>(kRows, 0));
  ASSERT_OK(mark_not_finite(stream(), {upload(x), kCols, kRows, kCols, nullptr, failed}));
  EXPECT_THAT(download(failed, kRows), testing::ElementsAre(0, 1, 0, 0, 1, 0));
  const std::vector<std::uint32_t> rows = {0, 3, 0, 0, 3, 1};
  failed = upload(std::vector<std::uint8_t>(4, 0));
  ASSERT_OK(mark_not_finite(stream(), {upload(x), kCols, kRows, kCols, upload(rows), failed}));
  EXPECT_THAT(download(failed, 4), testing::ElementsAre(0, 0, 0, 1));
}

TEST_F(CardOps, TheSumOverExperts_EqualsReferenceAtEveryShift) {
  constexpr std::uint32_t kRows = 3, kSlots = 8, kCols = 2048, kOutputs = 20;
  for (const int shift : {16, 24, 36}) {
    const std::vector<float> out = random(kOutputs * kCols);
    const std::vector<float> weights = random(kRows * kSlots, 0.2f);
    std::vector<std::int32_t> slots(kRows * kSlots);
    for (auto& slot : slots) slot = static_cast<std::int32_t>(rng_() % (kOutputs + 4)) - 4;
    std::vector<std::int64_t> sums(kRows * kCols);
    for (auto& sum : sums) sum = static_cast<std::int64_t>(rng_()) - (1 << 30);
    std::int64_t* card_sums = upload(sums);
    std::uint8_t* failed = upload(std::vector<std::uint8_t>(kRows, 0));
    ASSERT_OK(add_fixed(stream(), {upload(out), kCols, upload(slots), upload(weights), kSlots, kRows, kCols, shift,
                                   card_sums, failed}));
    for (std::uint32_t i = 0; i < kRows * kSlots; ++i) {
      if (slots[i] < 0) continue;
      ASSERT_TRUE(scalar().add_fixed(weights[i], &out[static_cast<std::uint32_t>(slots[i]) * kCols], kCols, shift,
                                     &sums[i / kSlots * kCols]));
    }
    EXPECT_EQ(download(card_sums, sums.size()), sums);
    EXPECT_THAT(download(failed, kRows), testing::Each(0));

    std::vector<float> x = random(kRows * kCols), moe(kCols);
    float* card_x = upload(x);
    ASSERT_OK(from_fixed(stream(), {card_sums, kRows, kCols, shift, card_x, true, failed}));
    for (std::uint32_t row = 0; row < kRows; ++row) {
      ASSERT_TRUE(scalar().from_fixed(&sums[row * kCols], kCols, shift, moe.data()));
      scalar().add(&x[row * kCols], moe.data(), kCols);
    }
    EXPECT_SAME_FLOATS(download(card_x, x.size()), x);
    EXPECT_THAT(download(failed, kRows), testing::Each(0));
  }
}

TEST_F(CardOps, SumsOutOfRange_FailTheirRowAlone) {
  constexpr std::uint32_t kRows = 4, kCols = 300;
  std::vector<float> out(kRows * kCols, 1.0f);
  out[1 * kCols + 299] = 0x1p27f;  // 2^(51 - 24)
  out[2 * kCols] = std::nanf("");
  const std::vector<std::int32_t> slots = {0, 1, 2, 3};
  const std::vector<float> weights(kRows, 1.0f);
  std::int64_t* sums = upload(std::vector<std::int64_t>(kRows * kCols, 0));
  std::uint8_t* failed = upload(std::vector<std::uint8_t>(kRows, 0));
  ASSERT_OK(
      add_fixed(stream(), {upload(out), kCols, upload(slots), upload(weights), 1, kRows, kCols, 24, sums, failed}));
  EXPECT_THAT(download(failed, kRows), testing::ElementsAre(0, 1, 1, 0));
  std::vector<std::int64_t> totals(kRows * kCols, 5);
  totals[3 * kCols + 7] = std::int64_t{1} << 51;
  failed = upload(std::vector<std::uint8_t>(kRows, 0));
  ASSERT_OK(from_fixed(stream(), {upload(totals), kRows, kCols, 24, room<float>(kRows * kCols), false, failed}));
  EXPECT_THAT(download(failed, kRows), testing::ElementsAre(0, 0, 0, 1));
}

TEST_F(CardOps, Routes_EqualReferenceUnderEveryRule) {
  constexpr std::uint32_t kRows = 33;
  for (const std::uint32_t n_experts : {4u, 60u, 128u, 512u})
    for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSigmoid})
      for (const bool biased : {false, true}) {
        std::vector<float> logits = random(kRows * n_experts, 2.0f);
        for (std::uint32_t i = 0; i < n_experts; ++i) {
          logits[i] = 1.5f;                                       // all equal: the lowest ids
          logits[n_experts + i] = i % 2 == 0 ? 0.0f : -0.0f;      // equal too
          logits[2 * n_experts + i] = static_cast<float>(i / 3);  // ties of three
        }
        const std::vector<float> bias = random(n_experts, 0.1f);
        RouterRule rule{kind, std::min<std::size_t>(8, n_experts), nullptr, biased, std::nullopt};
        if (biased) rule.scale = 2.5f;
        RouterRule on_card = rule;
        if (biased) {
          rule.selection_bias = bias.data();
          on_card.selection_bias = upload(bias);
        }
        auto* ids = room<std::uint16_t>(kRows * rule.top_k);
        auto* weights = room<float>(kRows * rule.top_k);
        ASSERT_OK(route(stream(), {upload(logits), kRows, n_experts, on_card, ids, weights}));
        std::vector<std::uint16_t> expected_ids(kRows * rule.top_k);
        std::vector<float> expected_weights(kRows * rule.top_k), scratch(2 * n_experts);
        for (std::uint32_t row = 0; row < kRows; ++row)
          kernels::route(&logits[row * n_experts], n_experts, rule, scalar().exp, scratch.data(),
                         &expected_ids[row * rule.top_k], &expected_weights[row * rule.top_k]);
        EXPECT_EQ(download(ids, expected_ids.size()), expected_ids);
        EXPECT_SAME_FLOATS(download(weights, expected_weights.size()), expected_weights);
      }
}

TEST_F(CardOps, TheGreedyToken_IsTheLargestLogitWithTheLowestId) {
  constexpr std::uint32_t kRows = 6, kVocabulary = 151936;
  std::vector<float> logits = random(kRows * kVocabulary);
  const auto at = [&](std::uint32_t row, std::uint32_t id) -> float& { return logits[row * kVocabulary + id]; };
  at(0, kVocabulary - 1) = 50.0f;
  at(1, 77777) = at(1, 4097) = at(1, 150000) = 50.0f;
  for (std::uint32_t id = 0; id < kVocabulary; ++id) at(2, id) = id < 9 ? -1.0f : id % 2 == 1 ? -0.0f : 0.0f;
  for (std::uint32_t id = 0; id < kVocabulary; ++id) at(3, id) = -1e30f - static_cast<float>(id) * 1e24f;
  at(4, 12345) = std::nanf("");
  at(5, 0) = 50.0f;
  auto* best = upload(std::vector<GreedyKey>(kRows, kNoLogitSeen));
  auto* failures = upload(std::vector<std::uint32_t>(9, kNoFailure));
  const std::vector<std::uint32_t> rows = {8, 7, 6, 5, 4, 3};
  ASSERT_OK(find_greedy(stream(), {upload(logits), kVocabulary, kRows, kVocabulary, best, failures, 77, upload(rows)}));
  std::vector<std::optional<std::uint32_t>> tokens;
  for (const GreedyKey key : download(best, kRows)) tokens.push_back(greedy_token(key));
  EXPECT_THAT(tokens, testing::ElementsAre(kVocabulary - 1, 4097u, 9u, 0u, std::nullopt, 0u));
  std::vector<std::uint32_t> noted(9, kNoFailure);
  noted[4] = 77;
  EXPECT_EQ(download(failures, 9), noted);
}

}  // namespace
}  // namespace terrace::kernels::cuda
