// Experts dealt to the host and to two cards, or to two legs of one card: the sums of the host alone.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/dispatcher.h"
#include "kernels/cuda/experts/open.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs {
namespace {

using test::kExperts;
using test::kTopK;

constexpr std::uint64_t kBudget = std::uint64_t{64} << 20;

// Host, first card, second card: expert e is leg e % 3's, of each layer another one.
OwnerTable dealt(const test::TestModel& model) {
  std::vector<std::uint16_t> places;
  for (std::uint32_t layer = 0; layer < model.n_layers(); ++layer)
    for (std::uint32_t expert = 0; expert < kExperts; ++expert)
      places.push_back(static_cast<std::uint16_t>((layer + expert) % 3));
  return OwnerTable(test::kEpoch, {"host", "a card", "another"}, model.n_layers(), kExperts, std::move(places));
}

class CardLegs : public ::testing::Test {
 protected:
  void expect_sums_of_the_host(std::uint32_t first, std::uint32_t second) {
    const test::TestModel model;
    const OwnerTable owners = dealt(model);
    Serial serial;
    HostLeg host(owners, model.lookup(), model.kernels, serial, model.ops);
    std::unique_ptr<kernels::ExpertCard> cards[2];
    std::unique_ptr<CardLeg> legs[2];
    for (std::size_t i = 0; i < 2; ++i) {
      auto card = kernels::cuda::open_expert_card(i == 0 ? first : second, kBudget);
      if (!card.ok()) GTEST_SKIP() << "no card: " << card.error().text();
      cards[i] = std::move(*card);
      auto leg = CardLeg::make(*cards[i], cards[i]->slab_memory(), owners, i + 1, model.kernels, 24,
                               i == 0 ? CardLeg::Place::kWithTrunk : CardLeg::Place::kApart);
      ASSERT_TRUE(leg.ok()) << leg.error().text();
      legs[i] = std::move(*leg);
      const Status loaded = legs[i]->load(model.part_reader(), serial, [](std::uint64_t, std::uint64_t) {});
      ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    }
    Dispatcher dispatcher(owners, {&host, legs[0].get(), legs[1].get()}, model.kernels, kTopK, serial, model.ops);
    terrace::test::Rng rng(test::kSeed);
    for (std::uint32_t layer = 0; layer < model.n_layers(); ++layer)
      for (const std::uint32_t n_rows : {1u, 7u, 700u}) {
        const test::Routed routed(layer, n_rows, n_rows > 64 ? Priority::kPrompt : Priority::kDecode, rng);
        const test::Sums expected = sums_of_the_host(model, routed);
        dispatcher.begin_step();
        test::Sums sums(n_rows);
        ASSERT_TRUE(dispatcher.submit(routed.view).ok());
        const Status collected = dispatcher.collect(sums.view(), sums.failed);
        ASSERT_TRUE(collected.ok()) << collected.error().text();
        EXPECT_EQ(sums, expected) << "layer " << layer << ", rows " << n_rows << ", seed " << test::kSeed;
      }
    for (const auto& leg : legs) EXPECT_GT(leg->counters().pairs, 0u);
  }

 private:
  static test::Sums sums_of_the_host(const test::TestModel& model, const test::Routed& routed) {
    const OwnerTable all(test::kEpoch, {"host"}, model.n_layers(), kExperts,
                         std::vector<std::uint16_t>(std::size_t{model.n_layers()} * kExperts, 0));
    Serial serial;
    HostLeg host(all, model.lookup(), model.kernels, serial, model.ops);
    Dispatcher dispatcher(all, {&host}, model.kernels, kTopK, serial, model.ops);
    test::Sums sums(routed.view.n_rows);
    EXPECT_TRUE(dispatcher.submit(routed.view).ok());
    EXPECT_TRUE(dispatcher.collect(sums.view(), sums.failed).ok());
    return sums;
  }
};

TEST_F(CardLegs, TwoOnOneCard_SumsOfTheHost) { expect_sums_of_the_host(0, 0); }

TEST_F(CardLegs, OnTwoCards_SumsOfTheHost) { expect_sums_of_the_host(0, 1); }

}  // namespace
}  // namespace terrace::legs
