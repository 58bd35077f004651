// A step on a card beside other legs against the whole step there; and what is left of one that was given up.
#include "kernels/card/card_trunk.h"

#include <gtest/gtest.h>

#include "tests/gpu/trunk_testing.h"

namespace terrace {
namespace {

constexpr std::uint64_t kBudget = std::uint64_t{512} << 20;
constexpr unsigned kSeed = 3511;
// Wide enough for the cluster that chooses experts.
constexpr test::TrunkShape kShape{.n_layers = 3,
                                  .d_model = 2048,
                                  .n_experts = 16,
                                  .top_k = 4,
                                  .ff = 256,
                                  .vocabulary = 512,
                                  .n_heads = 8,
                                  .n_kv_heads = 2,
                                  .head_dim = 64};

constexpr std::uint32_t kMostRows = 300;
constexpr kernels::CardTrunkLimits kLimits{kernels::KvType::kF16, kMostRows, 4, 512, 16, 4};

class CardTrunkSteps : public test::CardTrunkTest {
 protected:
  void SetUp() override {
    open(kShape, kLimits, kBudget, test::Slabs::kAlike);
    std::mt19937 rng(kSeed);
    x_ = test::bell_values(rng, std::size_t{kMostRows} * kShape.d_model, 1.0f);
  }

  void begin(std::uint32_t n_rows) {
    const kernels::CardStepSize size{n_rows, 1, n_rows, n_rows};
    test::fill_step(model_, size, x_, trunk_->begin(size));
  }
  std::vector<float> whole(std::uint32_t n_rows) {
    begin(n_rows);
    return logits(trunk_->run(slabs_), n_rows);
  }
  std::vector<float> beside(std::uint32_t n_rows) { return beside(n_rows, slabs_); }
  // Others give `given` for each value in each layer.
  std::vector<float> beside(std::uint32_t n_rows, std::span<const kernels::SlabView> slabs, std::int64_t given = 0) {
    begin(n_rows);
    EXPECT_TRUE(trunk_->start(slabs).ok());
    for (std::uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
      const auto routed = trunk_->routed(layer);
      EXPECT_TRUE(routed.ok()) << routed.error().text();
      std::ranges::fill(trunk_->sums(), given);
      trunk_->give_sums(layer);
    }
    return logits(trunk_->finish(), n_rows);
  }

  void expect_whole_equals_layers(std::uint32_t n_rows) {
    begin(n_rows);
    const std::vector<float> expected = layers_of_step(n_rows);
    for (int replay = 0; replay < 2; ++replay)
      EXPECT_EQUAL_FLOATS(whole(n_rows), expected, std::to_string(n_rows) + " rows");
  }
  void expect_parts_equal_whole(std::uint32_t n_rows) {
    const std::vector<float> expected = whole(n_rows);
    for (const std::vector<std::uint32_t>& ends :
         {std::vector{n_rows}, std::vector{n_rows / 2, n_rows}, std::vector{n_rows / 3, 2 * n_rows / 3, n_rows},
          std::vector{n_rows - 1, n_rows}}) {
      spoil(Spoiled::kStep);
      EXPECT_EQUAL_FLOATS(in_parts(ends, slabs_, 0), expected,
                          std::to_string(n_rows) + " rows in " + std::to_string(ends.size()) + " parts");
    }
  }
};

// Tests named LongSteps_ are left out under the sanitizer (run.sh): there each takes minutes.
// Steps of few rows are replayed, those of more are not; none of these waits for this thread.
TEST_F(CardTrunkSteps, WholeSteps_EqualTheirLayersWithSumsOfTheExecutor) {
  for (const std::uint32_t n_rows : {1u, 3u, 9u}) expect_whole_equals_layers(n_rows);
}
TEST_F(CardTrunkSteps, LongSteps_EqualTheirLayersWithSumsOfTheExecutor) { expect_whole_equals_layers(kMostRows); }

TEST_F(CardTrunkSteps, BesideLegsThatGiveNothing_EqualsTheWholeStep) {
  for (const std::uint32_t n_rows : {1u, 3u, 9u, 16u}) {
    const std::vector<float> expected = whole(n_rows);
    for (int replay = 0; replay < 3; ++replay)
      EXPECT_EQUAL_FLOATS(beside(n_rows), expected, std::to_string(n_rows) + " rows");
  }
}

// Any cut of a prompt: a part's rows attend to those of parts before it, and whatever the card works in is taken in
// turn.
TEST_F(CardTrunkSteps, InParts_EqualsTheWholeStep) {
  for (const std::uint32_t n_rows : {40u, 3u}) expect_parts_equal_whole(n_rows);
}
TEST_F(CardTrunkSteps, LongSteps_InPartsEqualTheWholeStep) { expect_parts_equal_whole(kMostRows); }

// What others give is added to what the card computed itself, in parts as in a step that the card goes through alone.
TEST_F(CardTrunkSteps, InPartsBesideTheOtherHalf_EqualsTheStartedStep) {
  std::vector<kernels::SlabView> half = slabs_;
  for (std::size_t i = 0; i < half.size(); i += 2) half[i] = {};
  constexpr std::int64_t kGiven = std::int64_t{3} << 20;
  const std::vector<float> expected = beside(16, half, kGiven);
  for (const std::vector<std::uint32_t>& ends : {std::vector{16u}, std::vector{8u, 16u}, std::vector{1u, 9u, 16u}}) {
    spoil(Spoiled::kStep);
    EXPECT_EQUAL_FLOATS(in_parts(ends, half, kGiven), expected, std::to_string(ends.size()) + " parts");
  }
  const std::vector<float> many = in_parts({kMostRows}, half, kGiven);
  EXPECT_EQUAL_FLOATS(in_parts({100u, 200u, kMostRows}, half, kGiven), many, "many rows in three parts");
}

// A step in parts that goes no further leaves nothing that the next one meets.
TEST_F(CardTrunkSteps, InPartsGivenUp_EndsAndLeavesNothingBehind) {
  const std::vector<float> expected = whole(40);
  for (std::uint32_t layers = 1; layers <= kShape.n_layers; ++layers) {
    begin_part(0, 0, 20);
    begin_part(1, 20, 20);
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      for (const std::uint32_t part : {0u, 1u}) ASSERT_OK(trunk_->queue_layer(part, layer, slabs_));
    trunk_->give_up();
    EXPECT_EQUAL_FLOATS(in_parts({20u, 40u}, slabs_, 0), expected, "given up in layer " + std::to_string(layers));
  }
}

TEST_F(CardTrunkSteps, GivenUpInAnyLayer_EndsAndLeavesNothingBehind) {
  for (const std::uint32_t n_rows : {1u, 3u}) {
    const std::vector<float> expected = whole(n_rows);
    for (std::uint32_t last = 0; last <= kShape.n_layers; ++last) {
      begin(n_rows);
      ASSERT_OK(trunk_->start(slabs_));
      for (std::uint32_t layer = 0; layer < last; ++layer) {
        ASSERT_OK(trunk_->routed(layer));
        if (layer + 1 < last) trunk_->give_sums(layer);
      }
      trunk_->give_up();
      EXPECT_EQUAL_FLOATS(whole(n_rows), expected, "given up before layer " + std::to_string(last));
      EXPECT_EQUAL_FLOATS(beside(n_rows), expected, "given up before layer " + std::to_string(last));
    }
  }
}

// The pairs of other legs are nobody's here: what lies where their values would is of an earlier step of another size,
// and fails no row.
TEST_F(CardTrunkSteps, HalfOfTheExpertsElsewhere_NoRowFailsByWhatEarlierStepsLeft) {
  std::vector<kernels::SlabView> part = slabs_;
  for (std::size_t i = 0; i < part.size(); i += 2) part[i] = {};
  for (const std::uint32_t n_rows : {4u, 8u, 1u, 16u, 3u}) {
    const std::vector<float> expected = beside(n_rows, part);
    spoil(Spoiled::kStep);
    EXPECT_EQUAL_FLOATS(beside(n_rows, part), expected, std::to_string(n_rows) + " rows");
  }
}

// A trunk that goes while a step waits for its legs.
TEST_F(CardTrunkSteps, DestroyedInAStartedStep_Ends) {
  begin(1);
  ASSERT_OK(trunk_->start(slabs_));
  trunk_.reset();
}

}  // namespace
}  // namespace terrace
