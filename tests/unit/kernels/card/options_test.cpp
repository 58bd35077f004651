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

// One line says what to do, the other what was done: neither says both.
TEST(CardOptions, WithoutACard_AdviceWhereItIsAnError_NoneWhereTheCpuComputes) {
  const CardRequest request{.gpu = 3, .vram = {}, .optional = true};
  const Error why(ErrorCode::kUnsupported, "card 3: no driver");
  ASSERT_TRUE(goes_on_without(request, why));
  EXPECT_EQ(without_card_text(request, why), "--gpu 3: card 3: no driver; the CPU computes (--gpu-optional)");
  EXPECT_EQ(no_card_error(why).text(), "card 3: no driver; leave out --gpu to compute on the CPU");
  EXPECT_EQ(no_card_error(why).code(), ErrorCode::kUnsupported);
  const Error other(ErrorCode::kNotFound, "card 3: this machine has 1");
  EXPECT_FALSE(goes_on_without(request, other));
  EXPECT_EQ(no_card_error(other).text(), other.text());
}

}  // namespace
}  // namespace terrace::kernels
