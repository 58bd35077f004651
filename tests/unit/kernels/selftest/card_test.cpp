#include "kernels/selftest/card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::kernels {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSlabBytes = std::uint64_t{4} << 20;

TEST(CardSelftest, ACardThatKeepsTheContract_Passes) {
  test::FakeCard card(kSlabBytes);
  const Status checked = check_card(card);
  EXPECT_TRUE(checked.ok()) << checked.error().text();
  EXPECT_GT(card.pairs, 0u);
}

TEST(CardSelftest, ACardThatComputesWrongly_IsNamedWithTheType) {
  test::FakeCard card(kSlabBytes);
  card.computes_wrongly = true;
  const Status checked = check_card(card);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().text(), HasSubstr("card 0 (Fake 1): self check: "));
  EXPECT_THAT(checked.error().text(), HasSubstr("gives other bits"));
}

TEST(CardSelftest, ACardThatIsBroken_SaysWhy) {
  test::FakeCard card(kSlabBytes);
  card.broken = true;
  EXPECT_THAT(check_card(card).error().text(), HasSubstr("fell off the bus"));
}

TEST(CardSelftest, TooLittleMemory_IsRefusedWithTheNumber) {
  test::FakeCard card(8192);
  EXPECT_THAT(check_card(card).error().text(), HasSubstr("8192 bytes of slab memory"));
}

}  // namespace
}  // namespace terrace::kernels
