#include "tier_node/app/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::node {
namespace budget_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A card that took 24 GiB.
struct Card24 {
  explicit Card24(bool integrated) : card(4096) {
    card.change_facts().budget_bytes = 24 * kGiB;
    card.change_facts().integrated = integrated;
  }
  test::FakeCard card;
};

std::uint64_t bytes_of(std::optional<std::uint64_t> ram, const kernels::ExpertCard* card) {
  NodeOptions options;
  if (ram) options.ram = Bytes{*ram};
  return choose_budget(options, card, 40 * kGiB).value().bytes;
}

TEST(NodeBudget, RamIsForBothWhereTheCardsMemoryIsTheHosts) {
  const Card24 of_its_own(false), of_the_host(true);
  EXPECT_EQ(bytes_of(64 * kGiB, nullptr), 64 * kGiB);
  EXPECT_EQ(bytes_of(64 * kGiB, &of_its_own.card), 64 * kGiB);
  EXPECT_EQ(bytes_of(64 * kGiB, &of_the_host.card), 40 * kGiB);
}

// What is available was asked for when the card had taken its part.
TEST(NodeBudget, WithoutRam_ThreeQuartersOfWhatIsAvailable_WhateverTheCard) {
  const Card24 of_its_own(false), of_the_host(true);
  for (const kernels::ExpertCard* card :
       {static_cast<const kernels::ExpertCard*>(nullptr), static_cast<const kernels::ExpertCard*>(&of_its_own.card),
        static_cast<const kernels::ExpertCard*>(&of_the_host.card)})
    EXPECT_EQ(bytes_of({}, card), 30 * kGiB);
}

TEST(NodeBudget, ACardThatTakesAllOfRam_IsRefusedWithBothNumbers) {
  const Card24 of_the_host(true);
  NodeOptions options;
  options.ram = Bytes{16 * kGiB};
  const auto refused = choose_budget(options, &of_the_host.card, 40 * kGiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().text(), HasSubstr("--ram 16G"));
  EXPECT_THAT(refused.error().text(), HasSubstr("takes 24G"));
}

}  // namespace budget_test
}  // namespace terrace::node
