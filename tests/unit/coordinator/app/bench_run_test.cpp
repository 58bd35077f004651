// The arithmetic of `terrace bench`.
#include "coordinator/app/bench_run.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::app {
namespace {

using Counts = std::vector<std::uint32_t>;

TEST(ParseCounts, ListsOfSeveralUses_AreOneList) {
  EXPECT_EQ(parse_counts("n-gen", {"1,0,512", "7"}).value(), (Counts{1, 0, 512, 7}));
  EXPECT_EQ(parse_counts("n-gen", {}).value(), Counts{});
}

TEST(ParseCounts, AnythingElse_IsRefusedAndQuoted) {
  for (const char* bad : {"", ",", "1,", ",1", "1,,2", " 1", "1 ", "-1", "+1", "1.5", "0x10", "nan", "x", "16777217",
                          "4294967296", "9223372036854775808"}) {
    const auto counts = parse_counts("n-gen", {bad});
    ASSERT_FALSE(counts.ok()) << bad;
    EXPECT_EQ(counts.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(counts.error().text().starts_with("--n-gen: \"")) << counts.error().text();
  }
}

TEST(BenchTests, EachDepth_PromptsThenGenerations_WithoutZeros) {
  const std::vector<BenchTest> expected = {{0, 512, 0},   {0, 0, 64},   {0, 0, 8},
                                           {100, 512, 0}, {100, 0, 64}, {100, 0, 8}};
  EXPECT_EQ(bench_tests(Counts{0, 100}, Counts{512, 0}, Counts{64, 0, 8}), expected);
  EXPECT_TRUE(bench_tests(Counts{0, 100}, Counts{0}, Counts{0}).empty());
  EXPECT_EQ(expected[0].name(), "pp512");
  EXPECT_EQ(expected[1].name(), "tg64");
}

TEST(CheckFits, LastPositionIsUsed_OneMoreIsRefusedWithNumbers) {
  const std::vector<BenchTest> tests = {{100, 0, 28}};
  EXPECT_TRUE(check_fits(tests, 128).ok());
  const Status status = check_fits(tests, 127);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kContextFull);
  EXPECT_EQ(status.error().text(),
            "tg28 at depth 100 needs 128 positions and the context holds 127; lower --depth or raise --ctx-size");
}

TEST(CheckFits, LargestCounts_DoNotWrap) {
  EXPECT_FALSE(check_fits(std::vector<BenchTest>{{UINT32_MAX, 1, 0}}, UINT32_MAX).ok());
}

TEST(SpreadOf, MeanAndSampleDeviation) {
  const Spread spread = spread_of(std::vector<double>{2, 4, 4, 6});
  EXPECT_DOUBLE_EQ(spread.mean, 4);
  EXPECT_DOUBLE_EQ(spread.stddev, std::sqrt(8.0 / 3));
  EXPECT_EQ(spread_of(std::vector<double>{5}).mean, 5);
  EXPECT_EQ(spread_of(std::vector<double>{5}).stddev, 0);
  EXPECT_EQ(spread_of({}).mean, 0);
}

TEST(Counters, SinceAndAdd_EveryFieldButSlabsSent) {
  const legs::LegCounters before = {1, 2, 3, 4, 5, 6, 7, 8};
  const legs::LegCounters after = {11, 22, 33, 44, 55, 66, 77, 88};
  legs::LegCounters sum = {100, 100, 100, 100, 100, 100, 100, 100};
  add(sum, since(before, after));
  EXPECT_EQ(sum.batches, 110u);
  EXPECT_EQ(sum.rows, 120u);
  EXPECT_EQ(sum.pairs, 130u);
  EXPECT_EQ(sum.bytes_sent, 140u);
  EXPECT_EQ(sum.bytes_received, 150u);
  EXPECT_EQ(sum.weight_bytes_sent, 66u) << "sent once, before anything is measured";
  EXPECT_EQ(sum.wait_us, 170u);
  EXPECT_EQ(sum.compute_us, 180u);
}

TEST(BenchResult, WeightRate_IsBytesATokenTimesTokensASecond) {
  BenchResult result;
  result.weight_bytes_per_token = 250e6;
  result.tokens_per_second = 40;
  EXPECT_DOUBLE_EQ(result.weight_gb_per_second(), 10);
}

class StepWeightBytes : public testing::Test {
 protected:
  StepWeightBytes() {
    info_.n_layers = 2;
    info_.n_experts = 16;
    info_.top_k = 4;
    info_.embedding_row_bytes = 10;
    info_.head_bytes = 1000;
    info_.expert_bytes = {100, 200};
    info_.weight_bytes_per_step = 5000 + 10 + 1000 + 4 * 100 + 4 * 200;  // 5000: dense matrices
  }
  arch::ModelInfo info_;
};

TEST_F(StepWeightBytes, OneRow_IsTheModelsStep) {
  EXPECT_EQ(step_weight_bytes(info_, 1, true, Counts{4, 4}), info_.weight_bytes_per_step);
}

// 5,000 bytes of dense matrices, 1,000 of the head and 1,200 of experts, beside 10 of the embedding.
TEST_F(StepWeightBytes, PartReadByACard_IsItsPairsAndItsTrunk) {
  EXPECT_DOUBLE_EQ(part_read_by_card(info_, false, 0.0), 0.0);
  EXPECT_DOUBLE_EQ(part_read_by_card(info_, false, 0.25), 300.0 / 7210);
  EXPECT_DOUBLE_EQ(part_read_by_card(info_, true, 0.25), 6300.0 / 7210);
  EXPECT_DOUBLE_EQ(part_read_by_card(info_, true, 1.0), 7200.0 / 7210);
}

TEST(ReadRates, EachMemoryIsReadAtItsOwnRate) {
  EXPECT_DOUBLE_EQ((ReadRates{100.0, std::nullopt}.seconds(1000, 0.5)), 10.0) << "without a card all is the host's";
  EXPECT_DOUBLE_EQ((ReadRates{100.0, 1000.0}.seconds(1000, 0.0)), 10.0);
  EXPECT_DOUBLE_EQ((ReadRates{100.0, 1000.0}.seconds(1000, 1.0)), 1.0);
  EXPECT_DOUBLE_EQ((ReadRates{100.0, 1000.0}.seconds(1000, 0.6)), 4.6);
}

// A run by a card without a measure, or by several, goes on without its share.
TEST(CardRate, OfOneCardThatHasIt_ElseNone_AndACardThatFailsIsTold) {
  const auto rate_of = [](const kernels::ExpertCard* card, std::size_t n_cards) {
    return measure_card_rate(card, n_cards).value();
  };
  test::FakeCard card(4096);
  EXPECT_EQ(rate_of(nullptr, 0), std::nullopt);
  EXPECT_EQ(rate_of(&card, 1), std::nullopt) << "it has no such measure";
  card.reads_a_second = 5e9;
  EXPECT_EQ(rate_of(&card, 1), 5e9);
  EXPECT_EQ(rate_of(&card, 2), std::nullopt) << "the other one may be slower";
  card.broken = true;
  EXPECT_EQ(measure_card_rate(&card, 1).error().code(), ErrorCode::kInternal);
}

TEST_F(StepWeightBytes, ManyRows_ReadEachChosenExpertOnce_AndTheHeadOnlyForLogits) {
  EXPECT_EQ(step_weight_bytes(info_, 3, true, Counts{16, 7}), 5000u + 30 + 1000 + 16 * 100 + 7 * 200);
  EXPECT_EQ(step_weight_bytes(info_, 3, false, Counts{16, 7}), 5000u + 30 + 16 * 100 + 7 * 200);
}

}  // namespace
}  // namespace terrace::app
