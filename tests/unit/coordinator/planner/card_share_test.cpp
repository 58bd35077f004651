// What a card takes of this machine's experts, and how a plan shows it.
#include "coordinator/planner/card_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/legs/card_leg.h"
#include "coordinator/planner/memory_plan.h"
#include "coordinator/planner/share.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::planner {
namespace card_share_test {

using ::testing::HasSubstr;

constexpr std::uint32_t kLayers = 3, kExperts = 8;

// Layer 1 is of another type and size than the others.
std::vector<kernels::ExpertKernels> layers() {
  std::vector<kernels::ExpertKernels> all;
  for (const TensorType down : {TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ4_K})
    all.push_back(*kernels::select_expert_kernels({down, down, down, 512, 256}, {}, kernels::Isa::kScalar,
                                                  kernels::Activations::kQuantised));
  return all;
}
manifest::Manifest model() {
  manifest::Manifest m;
  m.d_model = 512;
  m.n_experts = kExperts;
  m.top_k = 2;
  for (const kernels::ExpertKernels& layer : layers()) {
    manifest::LayerShape shape;
    shape.types = {layer.shape.gate, layer.shape.up, layer.shape.down};
    shape.d_model = 512;
    shape.ff = 256;
    shape.n_experts = kExperts;
    m.layers.push_back(shape);
  }
  return m;
}
legs::OwnerTable share(const std::string& spec, const std::vector<std::string>& nodes) {
  return parse_share(spec, {.nodes = nodes, .n_layers = kLayers, .n_experts = kExperts}).value();
}
std::uint64_t slab(std::uint32_t layer) { return legs::card_slab_bytes(layers()[layer].shape); }

TEST(CardShare, TakesTheFirstOfTheHostsExpertsInEachLayer) {
  const legs::OwnerTable owners = share("host=2-7,box:1=0-1", {"box:1"});
  const test::FakeCard card(2 * (slab(0) + slab(1) + slab(2)));
  const legs::OwnerTable with_card = give_hot_part(owners, card, card.slab_memory().size(), layers());
  ASSERT_EQ(with_card.leg_names(), (std::vector<std::string>{"host", "box:1", "card0"}));
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(with_card.experts(2, layer), (std::vector<std::uint16_t>{2, 3}));
    EXPECT_EQ(with_card.experts(1, layer), (std::vector<std::uint16_t>{0, 1}));
    EXPECT_EQ(with_card.experts(0, layer), (std::vector<std::uint16_t>{4, 5, 6, 7}));
  }
  EXPECT_EQ(with_card.epoch(), owners.epoch());
}

TEST(CardShare, ALargeCard_TakesAllOfTheHostsAndNoNodes) {
  const test::FakeCard card(std::uint64_t{64} << 20);
  const legs::OwnerTable with_card =
      give_hot_part(share("host=0-3,box:1=4-7", {"box:1"}), card, card.slab_memory().size(), layers());
  EXPECT_EQ(with_card.n_slabs(0), 0u);
  EXPECT_EQ(with_card.n_slabs(1), 4 * kLayers);
  EXPECT_EQ(with_card.n_slabs(2), 4 * kLayers);
}

TEST(CardShare, LayersThatTheCardHasNoKernelFor_StayOnTheHost) {
  test::FakeCard card(std::uint64_t{64} << 20);
  card.no_kernel_for = TensorType::kQ8_0;
  const legs::OwnerTable with_card = give_hot_part(share("host=0-7", {}), card, card.slab_memory().size(), layers());
  EXPECT_EQ(with_card.experts(1, 0).size(), kExperts);
  EXPECT_EQ(with_card.experts(1, 1).size(), 0u);
  EXPECT_EQ(with_card.experts(0, 1).size(), kExperts);
}

MemoryPlan plan(const legs::OwnerTable& owners, std::vector<CardInput> cards, std::uint64_t dense = 0) {
  static const manifest::Manifest m = model();
  static const arch::ModelInfo info = [] {
    arch::ModelInfo made;
    made.context = 4096;
    made.kv_bytes_per_position = 1024;
    return made;
  }();
  PlanInput input{.model = m, .info = info, .owners = owners, .host = {}, .cards = std::move(cards)};
  input.host.available = std::uint64_t{1} << 30;
  input.host.dense_bytes = dense;
  return plan_memory(input, {}).value();
}

TEST(CardShare, APlanShowsTheCard_AndItsPinnedMemoryOnTheHost) {
  test::FakeCard card(2 * (slab(0) + slab(1) + slab(2)));
  CardInput input = describe(card, 0);
  EXPECT_EQ(input.name, "card0");
  input.budget_bytes = input.slab_bytes + 1000;
  const legs::OwnerTable owners = give_hot_part(share("host=0-7", {}), card, card.slab_memory().size(), layers());
  const MemoryPlan p = plan(owners, {input});
  ASSERT_EQ(p.legs.size(), 2u);
  EXPECT_TRUE(p.fits());
  EXPECT_EQ(p.legs[1].name, "card0");
  EXPECT_EQ(p.legs[1].kind, legs::LegKind::kCard);
  EXPECT_EQ(p.legs[1].experts, "0-1");
  EXPECT_EQ(p.legs[1].slab_bytes, 2 * (slab(0) + slab(1) + slab(2)));
  EXPECT_EQ(p.legs[1].scratch_bytes, 1000u);
  EXPECT_EQ(p.legs[1].needs, p.legs[1].offers);
  EXPECT_EQ(p.legs[0].scratch_bytes, input.staging_bytes);
  EXPECT_EQ(p.legs[0].staging_bytes, 0u);  // no node
}

TEST(CardShare, FurtherCards_TakeOfWhatTheFirstLeave_InEveryLayer) {
  const std::uint64_t an_expert = slab(0) + slab(1) + slab(2);
  const test::FakeCard first(2 * an_expert), second(an_expert, 1), third(3 * an_expert, 3);
  legs::OwnerTable owners = share("host=1-7,box:1=0", {"box:1"});
  std::vector<CardInput> inputs;
  for (const test::FakeCard* card : {&first, &second, &third}) {
    owners = give_hot_part(owners, *card, card->slab_memory().size(), layers());
    inputs.push_back(describe(*card, 0));
  }
  ASSERT_EQ(owners.leg_names(), (std::vector<std::string>{"host", "box:1", "card0", "card1", "card3"}));
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(owners.experts(1, layer), (std::vector<std::uint16_t>{0}));
    EXPECT_EQ(owners.experts(2, layer), (std::vector<std::uint16_t>{1, 2}));
    EXPECT_EQ(owners.experts(3, layer), (std::vector<std::uint16_t>{3}));
    EXPECT_EQ(owners.experts(4, layer), (std::vector<std::uint16_t>{4, 5, 6}));
    EXPECT_EQ(owners.experts(0, layer), (std::vector<std::uint16_t>{7}));
  }
}

TEST(CardShare, APlanShowsEachCard_AndTheirPinnedMemoryOnTheHost) {
  const std::uint64_t an_expert = slab(0) + slab(1) + slab(2);
  const test::FakeCard first(2 * an_expert), second(an_expert, 1);
  legs::OwnerTable owners = share("host=0-7", {});
  std::vector<CardInput> inputs;
  for (const test::FakeCard* card : {&first, &second}) {
    owners = give_hot_part(owners, *card, card->slab_memory().size(), layers());
    inputs.push_back(describe(*card, 0));
  }
  const MemoryPlan p = plan(owners, inputs);
  EXPECT_TRUE(p.fits());
  ASSERT_EQ(p.legs.size(), 3u);
  EXPECT_EQ(p.legs[1].name, "card0");
  EXPECT_EQ(p.legs[1].experts, "0-1");
  EXPECT_EQ(p.legs[1].slab_bytes, 2 * an_expert);
  EXPECT_EQ(p.legs[2].name, "card1");
  EXPECT_EQ(p.legs[2].kind, legs::LegKind::kCard);
  EXPECT_EQ(p.legs[2].experts, "2");
  EXPECT_EQ(p.legs[2].offers, second.facts().budget_bytes);
  EXPECT_EQ(p.legs[0].scratch_bytes, inputs[0].staging_bytes + inputs[1].staging_bytes);
  EXPECT_EQ(p.legs[0].staging_bytes, 0u) << "cards are no nodes";
}

// Two cards that hold everything between them: the first one's trunk still comes back with each layer.
TEST(CardShare, OwnsAll_OfOneCardThatHoldsEverything_NotOfTwo) {
  const std::uint64_t an_expert = slab(0) + slab(1) + slab(2);
  const test::FakeCard all(kExperts * an_expert), most((kExperts - 1) * an_expert), rest(an_expert, 1);
  const legs::OwnerTable host = share("host=0-7", {});
  const legs::OwnerTable one = give_hot_part(host, all, all.slab_memory().size(), layers());
  EXPECT_TRUE(owns_all(one, 1));
  legs::OwnerTable two = give_hot_part(host, most, most.slab_memory().size(), layers());
  two = give_hot_part(two, rest, rest.slab_memory().size(), layers());
  EXPECT_EQ(two.n_slabs(0), 0u) << "nothing is left for the host";
  EXPECT_FALSE(owns_all(two, 1));
  EXPECT_FALSE(owns_all(two, 2));
}

TEST(CardShare, DenseMatricesComeFirst_OrStayOnTheHost) {
  arch::ModelInfo info;
  info.dense_products = {{TensorType::kQ4_K, 512, 512}, {TensorType::kF32, 3, 5}};
  const std::uint64_t dense = info.dense_products[0].bytes() + 256;  // 60 bytes take a place of 256
  test::FakeCard card(dense + slab(0));
  EXPECT_EQ(dense_bytes_on(card, info), dense);
  EXPECT_EQ(dense_bytes_on(test::FakeCard(dense - 1), info), 0u) << "they do not fit";
  card.no_kernel_for = TensorType::kF32;
  EXPECT_EQ(dense_bytes_on(card, info), 0u) << "one of them cannot be computed there";

  CardInput input = describe(card, dense);
  const legs::OwnerTable owners =
      give_hot_part(share("host=0-7", {}), card, card.slab_memory().size() - dense, layers());
  const MemoryPlan p = plan(owners, {input}, 2 * dense);
  EXPECT_EQ(p.legs[1].slabs, 1u);
  EXPECT_EQ(p.legs[1].dense_bytes, dense);
  EXPECT_EQ(p.legs[1].needs, p.legs[1].offers);
  EXPECT_EQ(p.legs[0].dense_bytes, dense);
  EXPECT_EQ(p.legs[0].scratch_bytes,
            2 * kernels::card_staging_bytes(card.facts().budget_bytes) + legs::kCardLoadingBytes);
}

TEST(CardShare, ACardThatHoldsNoExpert_IsRefusedWithNumbers) {
  test::FakeCard card(4096);
  const legs::OwnerTable owners = give_hot_part(share("host=0-7", {}), card, card.slab_memory().size(), layers());
  const MemoryPlan p = plan(owners, {describe(card, 0)});
  EXPECT_FALSE(p.fits());
  EXPECT_THAT(p.status().error().text(), HasSubstr("card 0 (Fake 1): no expert fits into the 4K"));
  EXPECT_THAT(p.status().error().text(), HasSubstr("--vram"));
}

// ---- the trunk ------------------------------------------------------------------------------------------------------

// A block of the cache is 32 positions of a byte each; so much the fake card's trunk takes for one.
arch::ModelInfo info() {
  arch::ModelInfo made;
  made.context = 32768;
  made.kv_bytes_per_position = 16;
  return made;
}

TEST(TrunkOnCard, HoldsOneContextThatWasAskedFor_AndABlockForEachStream) {
  const test::FakeCard card(1 << 20);
  arch::TrunkOptions options;
  options.context = 8192;
  options.max_streams = 2;
  const auto trunk = trunk_on(card, {}, info(), options);
  ASSERT_TRUE(trunk.ok()) << trunk.error().text();
  EXPECT_EQ(trunk->limits.context, 8192u);
  EXPECT_EQ(trunk->limits.max_kv_blocks, 8192u / 32 + 2);
  EXPECT_EQ(trunk->cache_bytes, (8192u / 32 + 2) * 32 * 16);
  EXPECT_EQ(trunk->limits.max_rows, options.max_rows);
}

// Rows, logits and sums of a step lie in pinned memory, which is the host's.
TEST(TrunkOnCard, ItsPinnedMemory_IsScratchOfTheHost) {
  test::FakeCard card(std::uint64_t{64} << 20);
  card.trunk_pins_a_row = 1000;
  arch::TrunkOptions options;
  options.max_rows = 4096;
  const auto trunk = trunk_on(card, {}, info(), options);
  ASSERT_TRUE(trunk.ok()) << trunk.error().text();
  EXPECT_EQ(trunk->pinned_bytes, 4096u * 1000);
  const legs::OwnerTable owners = give_hot_part(share("host=0-7", {}), card, slab(0), layers());
  const std::uint64_t scratch = plan(owners, {describe(card, 4096, 0)}).legs[0].scratch_bytes;
  EXPECT_EQ(plan(owners, {describe(card, 4096, 0, trunk->pinned_bytes)}).legs[0].scratch_bytes,
            scratch + trunk->pinned_bytes);
}

TEST(TrunkOnCard, WithoutAContext_AnEighthOfTheBudget) {
  const test::FakeCard card(1 << 20);
  arch::TrunkOptions options;
  options.max_streams = 2;
  const auto trunk = trunk_on(card, {}, info(), options);
  ASSERT_TRUE(trunk.ok()) << trunk.error().text();
  EXPECT_EQ(trunk->limits.context, 32768u) << "as far as blocks last";
  EXPECT_EQ(trunk->limits.max_kv_blocks, (1u << 20) / 8 / (32 * 16) + 2);
}

TEST(TrunkOnCard, MoreThanHalfOfTheMemory_StaysOnTheCpuWithTheNumbers) {
  test::FakeCard card(1 << 20);
  card.trunk_takes = 1 << 19;
  const auto trunk = trunk_on(card, {}, info(), {});
  ASSERT_FALSE(trunk.ok());
  EXPECT_EQ(trunk.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(trunk.error().text(), HasSubstr("more than half of the 1M"));
}

TEST(TrunkOnCard, WithoutAKernel_SaysWhy) {
  test::FakeCard card(1 << 20);
  card.no_kernel_for = TensorType::kF32;  // of the empty model's head
  const auto trunk = trunk_on(card, {}, info(), {});
  ASSERT_FALSE(trunk.ok());
  EXPECT_THAT(trunk.error().text(), HasSubstr("no kernel"));
}

}  // namespace card_share_test
}  // namespace terrace::planner
