#include "kernels/card/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::kernels {
namespace {

using ::testing::HasSubstr;

TEST(RamBesideCard, IsOneBudgetWhereTheCardsMemoryIsTheHosts) {
  EXPECT_EQ(ram_beside_card(64, false, 24).value(), 64u);
  EXPECT_EQ(ram_beside_card(64, true, 24).value(), 40u);
}

TEST(RamBesideCard, CardThatTakesItAll_IsRefusedWithBothNumbers) {
  constexpr std::uint64_t kGiB = 1u << 30;
  for (const std::uint64_t ram : {8 * kGiB, 24 * kGiB}) {
    const auto rest = ram_beside_card(ram, true, 24 * kGiB);
    ASSERT_FALSE(rest.ok());
    EXPECT_EQ(rest.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(rest.error().text(), HasSubstr(ram == 8 * kGiB ? "--ram 8G" : "--ram 24G"));
    EXPECT_THAT(rest.error().text(), HasSubstr("takes 24G"));
  }
}

}  // namespace
}  // namespace terrace::kernels
