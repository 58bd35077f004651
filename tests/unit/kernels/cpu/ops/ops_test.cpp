// What the operations promise beyond the vectors: errors, edges, choice of a table.
#include "kernels/cpu/ops/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops/scalar.h"
#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/cpu/ops/kv_blocks.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace {
namespace {

using kernels::Isa;
using kernels::KvType;
using kernels::Ops;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class OpsOfIsa : public testing::TestWithParam<Ops> {
 protected:
  const Ops& ops() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Isa, OpsOfIsa, testing::ValuesIn(test::tables_of_this_machine()),
                         [](const auto& param_info) { return test::isa_identifier(param_info.param.isa); });

TEST_P(OpsOfIsa, AllFinite_FindsOneBadValueAnywhere) {
  for (const std::size_t n : {1, 7, 8, 9, 40, 67}) {
    for (std::size_t where = 0; where < n; ++where) {
      for (const float bad : {kInfinity, -kInfinity, kNaN, -kNaN}) {
        std::vector<float> x(n, std::numeric_limits<float>::max());
        EXPECT_TRUE(ops().all_finite(x.data(), n));
        x[where] = bad;
        EXPECT_FALSE(ops().all_finite(x.data(), n)) << n << " " << where << " " << bad;
      }
    }
  }
}

TEST_P(OpsOfIsa, AllFinite_DoesNotReadPastTheEnd) {
  const std::vector<float> x = {1, 2, 3, kNaN};
  EXPECT_TRUE(ops().all_finite(x.data(), 3));
}

TEST_P(OpsOfIsa, Largest_IsTheLowestIndexOfEqualOnes) {
  for (const std::size_t n : {1, 2, 7, 8, 9, 16, 40, 67}) {
    for (std::size_t first = 0; first < n; ++first) {
      for (std::size_t second = first; second < n; ++second) {
        std::vector<float> x(n, -2.0f);
        x[second] = 0.0f;
        x[first] = -0.0f;  // equal to +0
        ASSERT_EQ(ops().largest(x.data(), n), first) << n << " " << second;
      }
    }
  }
}

TEST_P(OpsOfIsa, Largest_DoesNotReadPastTheEnd) {
  const std::vector<float> x = {-3, -2, -5, 7, -1, -1, -1, -1, -1, 9};
  EXPECT_EQ(ops().largest(x.data(), 3), 1u);
  EXPECT_EQ(ops().largest(x.data(), 9), 3u);
}

TEST_P(OpsOfIsa, ExpOfNaN_StaysNaN) {
  const std::vector<float> x = {kNaN, kInfinity, -kInfinity};
  std::vector<float> y(3);
  ops().exp(x.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isfinite(y[1]));
  EXPECT_GT(y[2], 0.0f);
}

TEST_P(OpsOfIsa, AddFixed_RefusesOutOfRangeAndNotFiniteAnywhere) {
  const float limit = 0x1p27f;  // 2^(51 - 24)
  for (const std::size_t n : {1, 3, 4, 5, 16, 19}) {
    for (std::size_t where = 0; where < n; ++where) {
      for (const float bad : {limit, -limit, kInfinity, -kInfinity, kNaN}) {
        std::vector<float> out(n, std::nextafter(limit, 0.0f));
        std::vector<std::int64_t> sums(n);
        EXPECT_TRUE(ops().add_fixed(1.0f, out.data(), n, 24, sums.data()));
        out[where] = bad;
        EXPECT_FALSE(ops().add_fixed(1.0f, out.data(), n, 24, sums.data())) << n << " " << where << " " << bad;
      }
    }
  }
}

TEST_P(OpsOfIsa, AddFixed_ProductThatOverflowsIsRefused) {
  const std::vector<float> out(9, 0x1p100f);
  std::vector<std::int64_t> sums(9);
  EXPECT_FALSE(ops().add_fixed(0x1p100f, out.data(), 9, 24, sums.data()));
}

TEST_P(OpsOfIsa, FromFixed_RefusesTotalsOf2To51AndMore) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 51;
  for (const std::int64_t bad :
       {kLimit, -kLimit, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    for (std::size_t where = 0; where < 7; ++where) {
      std::vector<std::int64_t> sums(7, where % 2 ? kLimit - 1 : 1 - kLimit);
      std::vector<float> x(7);
      EXPECT_TRUE(ops().from_fixed(sums.data(), 7, 24, x.data()));
      sums[where] = bad;
      EXPECT_FALSE(ops().from_fixed(sums.data(), 7, 24, x.data())) << bad << " " << where;
    }
  }
}

// All 65,536 halves are their own conversion; halfway points go to the even neighbour.
TEST_P(OpsOfIsa, StoreAsF16_RoundsToNearestEven) {
  constexpr std::size_t kDim = 1 << 16;
  std::vector<float> exact(kDim), halfway(kDim);
  for (std::uint32_t half = 0; half < kDim; ++half) {
    exact[half] = kernels::f16_to_f32(static_cast<std::uint16_t>(half));
    const bool has_next = std::isfinite(exact[half]) && (half & 0x7fff) < 0x7bff;
    const auto next = static_cast<std::uint16_t>(half + 1);
    halfway[half] = has_next ? (exact[half] + kernels::f16_to_f32(next)) / 2 : 0.0f;
  }
  std::vector<std::uint16_t> stored(kernels::kKvBlockPositions * kDim);
  auto* block = reinterpret_cast<std::byte*>(stored.data());
  ops().store_v(exact.data(), kDim, 0, KvType::kF16, block);
  ops().store_v(halfway.data(), kDim, 1, KvType::kF16, block);
  for (std::uint32_t half = 0; half < kDim; ++half) {
    if (std::isnan(exact[half])) {
      EXPECT_TRUE(std::isnan(kernels::f16_to_f32(stored[half])));
    } else {
      ASSERT_EQ(stored[half], half);
      const std::uint32_t even = half % 2 ? half + 1 : half;
      ASSERT_TRUE(halfway[half] == 0 || stored[kDim + half] == even) << half;
    }
  }
}

TEST_P(OpsOfIsa, Storable_SaysWhetherF16Overflows) {
  for (std::size_t where = 0; where < 11; ++where) {
    std::vector<float> x(11, std::nextafter(65520.0f, 0.0f));  // rounds to 65504, the largest half
    EXPECT_TRUE(ops().storable(x.data(), 11, KvType::kF16));
    x[where] = where % 2 ? 65520.0f : -65520.0f;
    EXPECT_FALSE(ops().storable(x.data(), 11, KvType::kF16));
    EXPECT_TRUE(ops().storable(x.data(), 11, KvType::kF32));
    x[where] = kNaN;
    EXPECT_FALSE(ops().storable(x.data(), 11, KvType::kF16));
    EXPECT_FALSE(ops().storable(x.data(), 11, KvType::kF32));
  }
}

// P4: what shares the group, and what lies behind the last key, has no effect on a head.
TEST_P(OpsOfIsa, Attention_HeadDoesNotDependOnItsGroupOrOnLaterKeys) {
  constexpr std::size_t kDim = 64, kHeads = 7, kKeys = 300;
  std::vector<float> q(kHeads * kDim), kv(kKeys * kDim);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < kv.size(); ++i) kv[i] = std::cos(static_cast<float>(i) * 0.7f);
  for (const std::size_t n : {1, 31, 33, 256, 270}) {
    const std::span<const float> seen = std::span<const float>(kv).first(n * kDim);
    const test::KvBlocks longer(ops(), KvType::kF16, kv, kv, kDim, kDim),
        exact(ops(), KvType::kF16, seen, seen, kDim, kDim);
    std::vector<float> together(kHeads * kDim), scratch(kernels::attention_scratch_floats(kHeads, kDim), kNaN);
    kernels::AttentionArgs args{.q = q.data(),
                                .out = together.data(),
                                .k = longer.k(),
                                .v = longer.v(),
                                .n_keys = n,
                                .n_heads = kHeads,
                                .head_dim = kDim,
                                .value_dim = kDim,
                                .scale = 0.125f,
                                .type = KvType::kF16,
                                .scratch = scratch.data()};
    ops().attend(args);
    for (std::size_t h = 0; h < kHeads; ++h) {
      const auto alone = test::attend(ops(), {1, kDim, kDim, 0.125f, KvType::kF16},
                                      std::span<const float>(q).subspan(h * kDim, kDim), exact);
      EXPECT_SAME_FLOATS(alone, std::span<const float>(together).subspan(h * kDim, kDim));
    }
  }
}

TEST_P(OpsOfIsa, Attention_ScoreThatOverflowsGivesNoFiniteOutput) {
  constexpr std::size_t kDim = 64;
  const std::vector<float> q(kDim, 1e38f), k(40 * kDim, 100.0f), v(40 * kDim, 1.0f);
  const test::KvBlocks cache(ops(), KvType::kF16, k, v, kDim, kDim);
  const auto out = test::attend(ops(), {1, kDim, kDim, 0.125f, KvType::kF16}, q, cache);
  EXPECT_FALSE(ops().all_finite(out.data(), out.size()));
}

TEST_P(OpsOfIsa, Route_EqualKeysGoToTheLowerId) {
  std::vector<float> logits(64, 1.0f), scratch(128), weights(5);
  std::vector<std::uint16_t> ids(5);
  logits[40] = logits[7] = 2.0f;
  logits[3] = -0.0f, logits[2] = 0.0f;
  kernels::route(logits.data(), 64, {.top_k = 5}, ops().exp, scratch.data(), ids.data(), weights.data());
  EXPECT_EQ(ids, (std::vector<std::uint16_t>{7, 40, 0, 1, 4}));
}

TEST_P(OpsOfIsa, Route_ZerosOfBothSignsAreEqualKeys) {
  std::vector<float> logits = {-1.0f, -0.0f, 0.0f, -0.0f}, scratch(8), weights(4);
  std::vector<std::uint16_t> ids(4);
  kernels::route(logits.data(), 4, {.top_k = 4}, ops().exp, scratch.data(), ids.data(), weights.data());
  EXPECT_EQ(ids, (std::vector<std::uint16_t>{1, 2, 3, 0}));
}

TEST_P(OpsOfIsa, Route_SelectionBiasChangesTheChoiceButNotTheWeights) {
  const std::vector<float> logits = {0.5f, 0.25f, 0.125f}, bias = {0.0f, 0.0f, 10.0f};
  std::vector<float> scratch(6), weights(1), probabilities(3);
  std::vector<std::uint16_t> ids(1);
  kernels::route(logits.data(), 3, {.kind = kernels::RouterKind::kSigmoid, .top_k = 1, .selection_bias = bias.data()},
                 ops().exp, scratch.data(), ids.data(), weights.data());
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(weights[0], 1.0f);  // p / p
}

TEST_P(OpsOfIsa, Route_ClampedSumKeepsTinyWeightsTiny) {
  const std::vector<float> logits(2, -20.0f);
  std::vector<float> scratch(4), weights(1);
  std::vector<std::uint16_t> ids(1);
  kernels::route(logits.data(), 2, {.kind = kernels::RouterKind::kSigmoid, .top_k = 1, .clamp_sum = true}, ops().exp,
                 scratch.data(), ids.data(), weights.data());
  EXPECT_EQ(weights[0], 1.0f / (1.0f + kernels::scalar::exp(20.0f)) / 0x1p-14f);
}

TEST(RopeTable, ScalingMultipliesTheAngleAndTheMagnitude) {
  std::vector<float> c(2), s(2), scaled_c(2), scaled_s(2);
  kernels::rope_table(10, 4, 1e4, {}, c.data(), s.data());
  kernels::rope_table(20, 4, 1e4, {.factor = 0.5, .magnitude = 2.0}, scaled_c.data(), scaled_s.data());
  for (int p = 0; p < 2; ++p) {
    EXPECT_EQ(scaled_c[p], 2 * c[p]);
    EXPECT_EQ(scaled_s[p], 2 * s[p]);
  }
}

TEST(SelectOps, WidestUnlessForced) {
  const kernels::CpuFeatures old_machine{}, new_machine{.avx2 = true, .avx512_vnni = true};
  EXPECT_EQ(kernels::select_ops(old_machine, std::nullopt)->isa, Isa::kScalar);
  EXPECT_EQ(kernels::select_ops(new_machine, std::nullopt)->isa, kernels::all_ops().back().isa);
  EXPECT_EQ(kernels::select_ops(new_machine, Isa::kScalar)->isa, Isa::kScalar);
}

TEST(SelectOps, ForcedIsaThatTheMachineLacks_IsRefusedByName) {
  const auto ops = kernels::select_ops(kernels::CpuFeatures{}, Isa::kAvx2);
  ASSERT_FALSE(ops.ok());
  EXPECT_EQ(ops.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(ops.error().text().find("avx2"), std::string::npos) << ops.error().text();
  EXPECT_NE(ops.error().text().find("scalar"), std::string::npos) << ops.error().text();
}

}  // namespace
}  // namespace terrace
