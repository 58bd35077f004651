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

constexpr std::uint32_t kMostRows = 40;
constexpr kernels::CardTrunkLimits kLimits{kernels::KvType::kF16, 64, 4, 512, 16};

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
  // Others give nothing in each layer.
  std::vector<float> beside(std::uint32_t n_rows, std::span<const kernels::SlabView> slabs) {
    begin(n_rows);
    EXPECT_TRUE(trunk_->start(slabs).ok());
    for (std::uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
      const auto routed = trunk_->routed(layer);
      EXPECT_TRUE(routed.ok()) << routed.error().text();
      std::ranges::fill(trunk_->sums(), 0);
      trunk_->give_sums(layer);
    }
    return logits(trunk_->finish(), n_rows);
  }

  std::vector<float> x_;
};

// Steps of few rows are replayed, those of more are not; none of these waits for this thread.
TEST_F(CardTrunkSteps, WholeSteps_EqualTheirLayersWithSumsOfTheExecutor) {
  for (const std::uint32_t n_rows : {1u, 3u, 9u, kMostRows}) {
    begin(n_rows);
    const std::vector<float> expected = layers_of_step(n_rows);
    for (int replay = 0; replay < 2; ++replay)
      EXPECT_EQUAL_FLOATS(whole(n_rows), expected, std::to_string(n_rows) + " rows");
  }
}

TEST_F(CardTrunkSteps, BesideLegsThatGiveNothing_EqualsTheWholeStep) {
  for (const std::uint32_t n_rows : {1u, 3u, 9u, 16u}) {
    const std::vector<float> expected = whole(n_rows);
    for (int replay = 0; replay < 3; ++replay)
      EXPECT_EQUAL_FLOATS(beside(n_rows), expected, std::to_string(n_rows) + " rows");
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
