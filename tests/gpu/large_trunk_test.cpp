// Whole steps in the shape of Qwen3-30B-A3B, of two layers: how a prompt is cut, and where its experts are computed,
// changes no bit of any row's logits.
#include <algorithm>
#include <random>

#include "tests/gpu/large_model.h"
#include "tests/gpu/trunk_testing.h"

namespace terrace {
namespace {

namespace large = test::large_model;

constexpr unsigned kLargeSeed = 3517;
constexpr std::uint64_t kLargeBudget = std::uint64_t{3} << 30;
constexpr std::uint32_t kPositions = 520;
constexpr test::TrunkShape kLargeShape{.n_layers = 2,
                                       .d_model = large::kWidth,
                                       .n_experts = large::kExperts,
                                       .top_k = large::kTopK,
                                       .ff = large::kExpertWidth,
                                       .vocabulary = large::kVocabulary,
                                       .n_heads = large::kHeads,
                                       .n_kv_heads = large::kKvHeads,
                                       .head_dim = large::kHeadDim};
constexpr kernels::CardTrunkLimits kLargeLimits{kernels::KvType::kF16, large::kMostRows, 4, 1024, 32, 3};

class CardLargeSteps : public test::CardTrunkTest {
 protected:
  void SetUp() override {
    open(kLargeShape, kLargeLimits, kLargeBudget, test::Slabs::kDistinct);
    std::mt19937 rng(kLargeSeed);
    x_ = test::bell_values(rng, std::size_t{kPositions} * kLargeShape.d_model, 1.0f);
  }

  // Rows first .. first + n_rows - 1 of the stream, logits of all of them.
  void begin(std::uint32_t first, std::uint32_t n_rows) {
    const kernels::CardStepSize size{n_rows, 1, n_rows, first + n_rows};
    test::fill_step(model_, size, std::span(x_).subspan(std::size_t{first} * kLargeShape.d_model), trunk_->begin(size));
  }
  std::vector<float> whole(std::uint32_t first, std::uint32_t n_rows) {
    begin(first, n_rows);
    return logits(trunk_->run(slabs_), n_rows);
  }
  std::vector<float> in_chunks(std::uint32_t rows) {
    spoil(Spoiled::kCacheAndStep);
    std::vector<float> all;
    for (std::uint32_t first = 0; first < kPositions; first += rows) {
      const std::vector<float> some = whole(first, std::min(rows, kPositions - first));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  std::vector<float> by_layers(std::uint32_t n_rows, std::int64_t planted = 0) {
    begin(0, n_rows);
    return layers_of_step(n_rows, planted);
  }
};

// Steps of 1 and 7 rows are replayed graphs, those of 64 and 512 launched as they come.
TEST_F(CardLargeSteps, TokenByToken_EqualsChunksOf7And64And512) {
  const std::vector<float> token_by_token = in_chunks(1);
  ASSERT_EQ(token_by_token.size(), std::size_t{kPositions} * kLargeShape.vocabulary);
  for (const std::uint32_t rows : {7u, 64u, 512u})
    EXPECT_EQUAL_FLOATS(in_chunks(rows), token_by_token, "chunks of " + std::to_string(rows));
}

// Where a part is one row, which goes on from keys that the part before it wrote a moment ago: attention of lone rows
// brings keys before what comes before it has ended, and only those that are older than the step.
TEST_F(CardLargeSteps, InParts_EqualTheWholeStep) {
  for (const std::vector<std::uint32_t>& ends : {std::vector{1u, 9u, 16u}, std::vector{511u, 512u}}) {
    const std::vector<float> expected = whole(0, ends.back());
    spoil(Spoiled::kCacheAndStep);
    EXPECT_EQUAL_FLOATS(in_parts(ends, slabs_, 0), expected, "cut at " + std::to_string(ends.front()));
  }
}

TEST_F(CardLargeSteps, ExpertsInTheStep_EqualSumsOfTheExecutor) {
  for (const std::uint32_t n_rows : large::kRows) {
    const std::vector<float> expected = by_layers(n_rows);
    EXPECT_EQUAL_FLOATS(whole(0, n_rows), expected, std::to_string(n_rows) + " rows");
  }
}

// The comparison itself: one sum that is off is seen. (Not any: quantising hides 2^-14, which is why sums are compared
// too, by gpu_executor_test.)
TEST_F(CardLargeSteps, OneWrongSum_IsCaught) {
  const std::vector<float> expected = whole(0, 3);
  EXPECT_EQ(test::first_unequal(by_layers(3), expected), std::nullopt);
  EXPECT_NE(test::first_unequal(by_layers(3, 1 << 20), expected), std::nullopt);
}

}  // namespace
}  // namespace terrace
