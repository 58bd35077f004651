// What `terrace bench --legs-alone` records, gives back and adds up.
#include "coordinator/app/bench_legs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "coordinator/app/recorded_experts.h"

namespace terrace::app {
namespace {

constexpr std::size_t kWidth = 2, kTopK = 1;

// Layers come back in the order in which they were submitted: each value 100 * call + row.
class Counting final : public legs::RoutedExperts {
 public:
  Status submit(const legs::RoutedRows&) override {
    ++submitted;
    return {};
  }
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    for (std::size_t row = 0; row < failed.size(); ++row)
      std::fill_n(sums.row(row), kWidth, std::int64_t(100 * collected + row));
    ++collected;
    return {};
  }
  std::span<const kernels::SlabView> part_on_card() override { return part; }

  std::size_t submitted = 0, collected = 0;
  std::array<kernels::SlabView, 1> part;
};

class RecordedExpertsTest : public ::testing::Test {
 protected:
  static legs::RoutedRows rows(std::uint32_t layer, std::uint32_t n_rows) {
    static constexpr float kRows[] = {1, 2, 3, 4};
    static constexpr std::uint16_t kExperts[] = {7, 9};
    static constexpr float kWeights[] = {0.5f, 0.25f};
    return {.layer = layer, .rows = kRows, .n_rows = n_rows, .experts = kExperts, .weights = kWeights};
  }
  // Two parts of a layer under way at once, then one of the next.
  std::vector<std::int64_t> step() {
    EXPECT_TRUE(recorded_.submit(rows(0, 2)).ok());
    EXPECT_TRUE(recorded_.submit(rows(0, 1)).ok());
    std::vector<std::int64_t> all = collect(2);
    EXPECT_TRUE(recorded_.submit(rows(1, 2)).ok());
    for (const std::uint32_t n_rows : {1u, 2u}) std::ranges::copy(collect(n_rows), std::back_inserter(all));
    return all;
  }
  std::vector<std::int64_t> collect(std::uint32_t n_rows) {
    std::vector<std::int64_t> sums(n_rows * kWidth, -1);
    std::vector<std::uint8_t> failed(n_rows);
    EXPECT_TRUE(recorded_.collect({sums.data(), kWidth, 24}, failed).ok());
    return sums;
  }

  Counting legs_;
  RecordedExperts recorded_{legs_, kWidth, kTopK};
};

TEST_F(RecordedExpertsTest, WhatWasRecorded_ComesBackInItsOrder_WithoutALeg) {
  recorded_.set(RecordedExperts::Mode::kRecord);
  const std::vector<std::int64_t> expected = step();
  EXPECT_EQ(expected, (std::vector<std::int64_t>{0, 0, 1, 1, 100, 100, 200, 200, 201, 201}));
  ASSERT_EQ(recorded_.recorded().size(), 3u);
  EXPECT_EQ(recorded_.recorded()[1].n_rows, 1u);
  EXPECT_EQ(recorded_.recorded()[2].layer, 1u);
  EXPECT_EQ(recorded_.recorded()[2].rows, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(recorded_.recorded()[2].experts, (std::vector<std::uint16_t>{7, 9}));
  EXPECT_EQ(recorded_.recorded()[0].weights, (std::vector<float>{0.5f, 0.25f}));
  for (int again = 0; again < 2; ++again) {
    recorded_.set(RecordedExperts::Mode::kGiveBack);
    EXPECT_EQ(step(), expected);
  }
  EXPECT_EQ(recorded_.part_on_card().size(), 1u) << "a card computes its part once more";
  EXPECT_EQ(legs_.submitted, 3u);
  EXPECT_EQ(legs_.collected, 3u);
}

TEST_F(RecordedExpertsTest, TheTrunkAlone_GetsZeros_AndItsCardHasNoPart) {
  recorded_.set(RecordedExperts::Mode::kGiveNothing);
  EXPECT_EQ(step(), std::vector<std::int64_t>(10, 0));
  EXPECT_TRUE(recorded_.part_on_card().empty());
  EXPECT_EQ(legs_.submitted, 0u);
  recorded_.set(RecordedExperts::Mode::kPass);
  step();
  EXPECT_EQ(legs_.collected, 3u);
  EXPECT_TRUE(recorded_.recorded().empty()) << "passed on is not remembered";
}

TEST(SumOfLongest, IsOfEachLayer_NotOfTheLongestLeg) {
  std::vector<LegAlone> legs(2);
  EXPECT_DOUBLE_EQ(sum_of_longest({{1, 5, 2}, {4, 1, 2}}, legs), 4.0 + 5 + 2);
  EXPECT_EQ(legs[0].longest, 2u) << "of equal ones the first";
  EXPECT_EQ(legs[1].longest, 1u);
  EXPECT_DOUBLE_EQ(sum_of_longest({}, {}), 0);
}

}  // namespace
}  // namespace terrace::app
