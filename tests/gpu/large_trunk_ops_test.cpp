// The fused operations of a step in the shape of Qwen3-30B-A3B, for rows 1 to 9, 64, 65 and 512, against the single
// ones, which gpu_ops_test compares with the scalar table at the same shapes.
#include <gmock/gmock.h>

#include <tuple>

#include "kernels/cuda/combine/combine.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/gpu/large_model.h"
#include "tests/gpu/trunk_ops_testing.h"

namespace terrace::kernels::cuda {
namespace {

using test::kClasses;
using ::testing::Each;
namespace large = test::large_model;

class CardLargeTrunkOps : public test::CardTrunkOps {
 protected:
  // The residual of experts, and that of their sums, against the single operations.
  void expect_sums_added(std::uint32_t n_rows) {
    constexpr std::uint32_t kTopK = large::kTopK, n = large::kWidth;
    const std::uint32_t n_pairs = n_rows * kTopK;
    const auto x = random(n_rows * n), out = random(n_pairs * n), weights = random(n_pairs);
    std::vector<std::int32_t> slots(n_pairs);
    for (std::uint32_t i = 0; i < n_pairs; ++i) slots[i] = static_cast<std::int32_t>(i * 7 % n_pairs);
    auto* sums = upload(std::vector<std::int64_t>(n_rows * n));
    auto* flags = upload(std::vector<std::uint8_t>(n_rows));
    float* expected = upload(x);
    AddFixedArgs fixed;
    fixed.out = upload(out);
    fixed.out_stride = n;
    fixed.slots = upload(slots);
    fixed.weights = upload(weights);
    fixed.n_slots = kTopK;
    fixed.n_rows = n_rows;
    fixed.n = n;
    fixed.sums = sums;
    fixed.failed = flags;
    ASSERT_OK(add_fixed(stream(), fixed));
    ASSERT_OK(from_fixed(stream(), {sums, n_rows, n, 24, expected, true, flags}));
    for (const bool of_sums : {false, true}) {
      ResidualArgs args;
      args.x = upload(x);
      args.n_rows = n_rows;
      args.n = n;
      if (of_sums)
        args.sums = sums;
      else
        args.experts = {fixed.out, fixed.slots, fixed.weights, kTopK};
      args.failures = no_failures(n_rows);
      ASSERT_OK(residual(stream(), args));
      EXPECT_EQUAL_FLOATS(download(args.x, n_rows * n), download(expected, n_rows * n),
                          (of_sums ? "sums, " : "experts, ") + std::to_string(n_rows) + " rows");
      EXPECT_THAT(download(args.failures, n_rows), Each(kNoFailure));
    }
  }

  void expect_heads(std::uint32_t n_rows, KvType type) {
    constexpr std::uint32_t kWidth = large::kKeys, kBlocks = large::kMostRows / kKvBlockPositions;
    std::vector<std::uint32_t> positions(n_rows), table(kBlocks);
    for (std::uint32_t i = 0; i < n_rows; ++i) positions[i] = i;
    for (std::uint32_t i = 0; i < kBlocks; ++i) table[i] = kBlocks - 1 - i;
    const std::size_t cache_bytes = std::size_t{kBlocks} * kKvBlockPositions * kWidth * bytes(type);
    const auto empty = [&] {
      return KvCache{zeros(cache_bytes), zeros(cache_bytes), type,          large::kKvHeads,
                     large::kHeadDim,    large::kHeadDim,    upload(table), kBlocks};
    };
    HeadsArgs args;
    args.q = upload(random(std::size_t{n_rows} * large::kQueries));
    const auto k = random(n_rows * kWidth);
    args.k = upload(k);
    args.v = upload(random(n_rows * kWidth));
    args.n_rows = n_rows;
    args.n_heads = large::kHeads;
    args.q_norm = upload(random(large::kHeadDim));
    args.k_norm = upload(random(large::kHeadDim));
    args.eps = 1e-6f;
    args.n_rot = large::kHeadDim;
    args.cosines = upload(random(n_rows * large::kHeadDim / 2));
    args.sines = upload(random(n_rows * large::kHeadDim / 2));
    args.cache = empty();
    args.streams = upload(std::vector<std::uint32_t>(n_rows));
    args.positions = upload(positions);
    args.failures = no_failures(n_rows);

    const std::size_t n_queries = std::size_t{n_rows} * large::kQueries;
    float *q = upload(download(args.q, n_queries)), *normed_k = upload(k);
    const KvCache expected = empty();
    for (const auto& [x, n_heads, w] :
         {std::tuple{q, large::kHeads, args.q_norm}, std::tuple{normed_k, large::kKvHeads, args.k_norm}}) {
      ASSERT_OK(
          rms_norm(stream(), {x, large::kHeadDim, w, x, large::kHeadDim, n_rows * n_heads, large::kHeadDim, args.eps}));
      ASSERT_OK(rope(stream(), {x, n_heads * large::kHeadDim, n_rows, n_heads, large::kHeadDim, large::kHeadDim,
                                args.cosines, args.sines}));
    }
    ASSERT_OK(kv_append(stream(), {expected, normed_k, kWidth, args.v, kWidth, args.streams, args.positions, n_rows,
                                   upload(std::vector<std::uint8_t>(n_rows))}));
    ASSERT_OK(finish_heads(stream(), args));
    const std::string rows = std::to_string(n_rows) + " rows";
    EXPECT_EQUAL_FLOATS(download(args.q, n_queries), download(q, n_queries), rows);
    EXPECT_TRUE(download(args.cache.k, cache_bytes) == download(expected.k, cache_bytes)) << "keys, " << rows;
    EXPECT_TRUE(download(args.cache.v, cache_bytes) == download(expected.v, cache_bytes)) << "values, " << rows;
    EXPECT_THAT(download(args.failures, n_rows), Each(kNoFailure));
  }
};

TEST_F(CardLargeTrunkOps, ResidualOfExpertsAndOfSums_EqualsTheFixedPointSum) {
  for (const std::uint32_t n_rows : large::kRows) expect_sums_added(n_rows);
}

TEST_F(CardLargeTrunkOps, FinishedHeads_EqualNormRopeAndAppend) {
  for (const KvType type : {KvType::kF16, KvType::kF32})
    for (const std::uint32_t n_rows : large::kRows) expect_heads(n_rows, type);
}

TEST_F(CardLargeTrunkOps, ExpertRows_EqualSiluAndQuantise) {
  constexpr std::uint32_t n = large::kExpertWidth;
  for (const std::uint32_t n_rows : large::kRows) {
    const std::uint32_t n_pairs = n_rows * large::kTopK;
    std::vector<std::uint32_t> x_rows(n_pairs);
    for (std::uint32_t i = 0; i < n_pairs; ++i) x_rows[i] = i % n_rows;
    ExpertRowsArgs args;
    args.gate = upload(random(n_pairs * n));
    args.up = upload(random(n_pairs * n));
    args.n_pairs = n_pairs;
    args.n = n;
    args.x_rows = upload(x_rows);
    args.failures = no_failures(n_rows);
    float* expected = room<float>(n_pairs * n);
    ASSERT_OK(silu_mul(stream(), args.gate, args.up, n_pairs * n, expected));
    for (const ActivationClass activation : kClasses) {
      args.out = {activation, zeros(n_pairs * stride(activation, n)), stride(activation, n)};
      ASSERT_OK(expert_rows(stream(), args));
      EXPECT_TRUE(download(args.out.rows, n_pairs * args.out.stride) == card_rows(activation, expected, n_pairs, n))
          << n_rows << " rows";
      EXPECT_THAT(download(args.failures, n_rows), Each(kNoFailure));
    }
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
