#include "kernels/card/slices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/kernels/executor/test_layer.h"

namespace terrace::kernels {
namespace {

constexpr unsigned kSeed = 4711;

struct Cut {
  std::vector<CardSlice> slices;
  std::vector<int> taken;  // [pairs] how many slices have it
};

Cut cut(std::span<const Pair> pairs, std::uint32_t n_rows, const SliceLimits& limits) {
  Cut result{{}, std::vector<int>(pairs.size(), 0)};
  Slicer slicer;
  slicer.begin(pairs, n_rows, limits);
  while (const CardSlice* slice = slicer.next()) {
    result.slices.push_back(*slice);
    for (const std::uint32_t pair : slice->pairs) ++result.taken[pair];
  }
  return result;
}

void expect_sound(const Cut& result, std::span<const Pair> pairs, std::uint32_t n_rows, const SliceLimits& limits) {
  EXPECT_TRUE(std::all_of(result.taken.begin(), result.taken.end(), [](int n) { return n == 1; }));
  for (const CardSlice& slice : result.slices) {
    EXPECT_FALSE(slice.pairs.empty());
    EXPECT_LE(slice.pairs.size(), limits.pairs);
    EXPECT_LE(slice.n_rows, limits.rows);
    EXPECT_LE(slice.first_row + slice.n_rows, n_rows);
    EXPECT_TRUE(std::is_sorted(slice.pairs.begin(), slice.pairs.end()));
    std::vector<std::uint32_t> count(slice.n_rows, 0);
    for (const std::uint32_t i : slice.pairs) {
      ASSERT_GE(pairs[i].row, slice.first_row);
      ASSERT_LT(pairs[i].row, slice.first_row + slice.n_rows);
      ++count[pairs[i].row - slice.first_row];
    }
    EXPECT_EQ(*std::max_element(count.begin(), count.end()), slice.most_pairs_of_row);
    EXPECT_LE(slice.most_pairs_of_row, limits.pairs_of_row);
  }
}

TEST(CardSlices, WhatFits_IsOneSlice) {
  test::Rng rng(kSeed);
  const std::vector<Pair> pairs = test::random_pairs(40, 16, 8, rng);
  const SliceLimits limits{512, 4096, 32};
  const Cut result = cut(pairs, 40, limits);
  ASSERT_EQ(result.slices.size(), 1u);
  EXPECT_EQ(result.slices[0].n_rows, 40u);
  EXPECT_EQ(result.slices[0].most_pairs_of_row, 8u);
  expect_sound(result, pairs, 40, limits);
}

TEST(CardSlices, AnyLimits_EveryPairIsInOneSlice) {
  test::Rng rng(kSeed);
  const std::vector<Pair> pairs = test::random_pairs(70, 16, 8, rng);
  for (const std::uint32_t rows : {1u, 7u, 64u, 70u, 512u})
    for (const std::uint32_t n : {1u, 5u, 64u, 4096u})
      for (const std::uint32_t of_row : {1u, 3u, 8u, 32u}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << n << " pairs, " << of_row << " of a row, seed "
                                        << kSeed);
        const SliceLimits limits{rows, n, of_row};
        expect_sound(cut(pairs, 70, limits), pairs, 70, limits);
      }
}

TEST(CardSlices, RowsWithoutPairs_GiveNoEmptySlice) {
  const std::vector<Pair> pairs = {{9, 0, 1.0f}, {2, 1, 1.0f}};
  const SliceLimits limits{2, 8, 8};
  const Cut result = cut(pairs, 100, limits);
  EXPECT_EQ(result.slices.size(), 2u);
  expect_sound(result, pairs, 100, limits);
  EXPECT_TRUE(cut({}, 100, limits).slices.empty());
}

}  // namespace
}  // namespace terrace::kernels
