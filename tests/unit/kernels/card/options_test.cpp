#include "kernels/card/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/card/open_cards.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::kernels {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(RamBesideCards, IsOneBudgetWhereTheirMemoryIsTheHosts) {
  EXPECT_EQ(ram_beside_cards(64, 0).value(), 64u);
  EXPECT_EQ(ram_beside_cards(64, 24).value(), 40u);
}

TEST(RamBesideCards, CardsThatTakeItAll_AreRefusedWithBothNumbers) {
  for (const std::uint64_t ram : {8 * kGiB, 24 * kGiB}) {
    const auto rest = ram_beside_cards(ram, 24 * kGiB);
    ASSERT_FALSE(rest.ok());
    EXPECT_EQ(rest.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(rest.error().text(), HasSubstr(ram == 8 * kGiB ? "--ram 8G" : "--ram 24G"));
    EXPECT_THAT(rest.error().text(), HasSubstr("takes 24G"));
  }
}

// "0:1024 1:-" of the orders that flags give.
std::string orders_of(const Texts& gpu, const Texts& vram) {
  const auto orders = read_orders({.gpu = gpu, .vram = vram, .optional = false});
  if (!orders.ok()) return orders.error().text();
  std::string text;
  for (const CardOrder& order : *orders)
    text += std::to_string(order.index) + ":" +
            (order.budget_bytes ? std::to_string(*order.budget_bytes / kGiB) : std::string("-")) + " ";
  return text;
}

TEST(CardOptions, CardsInTheOrderOfTheFlag_EachWithItsMemory) {
  EXPECT_EQ(orders_of({}, {}), "");
  EXPECT_EQ(orders_of({"0"}, {}), "0:- ");
  EXPECT_EQ(orders_of({"1,0"}, {"24G,16G"}), "1:24 0:16 ");
  EXPECT_EQ(orders_of({"2", "0"}, {"24G", "16G"}), "2:24 0:16 ") << "flags that are given again, or a list of a file";
  EXPECT_EQ(orders_of({"0,1,2"}, {"8G"}), "0:8 1:8 2:8 ") << "one size is each one's";
}

TEST(CardOptions, WhatMakesNoSense_IsRefusedByName) {
  EXPECT_THAT(orders_of({"0,1,0"}, {}), HasSubstr("--gpu: card 0 is named twice"));
  EXPECT_THAT(orders_of({"0,1,2"}, {"8G,4G"}), HasSubstr("--vram has 2 sizes and --gpu 3 cards"));
  EXPECT_THAT(orders_of({"0"}, {"8G,4G"}), HasSubstr("--vram has 2 sizes and --gpu 1 card;"));
  EXPECT_THAT(orders_of({}, {"8G"}), HasSubstr("--vram 8G is memory of a card"));
  EXPECT_THAT(orders_of({"0,"}, {}), HasSubstr("--gpu: ''"));
  EXPECT_THAT(orders_of({"0,-1"}, {}), HasSubstr("--gpu: '-1'"));
  EXPECT_THAT(orders_of({"0,256"}, {}), HasSubstr("--gpu: '256'"));
  EXPECT_THAT(orders_of({"0,1"}, {"8G,many"}), HasSubstr("--vram: 'many'"));
  EXPECT_THAT(orders_of({"0"}, {"1K"}), HasSubstr("--vram: '1K'"));
  EXPECT_THAT(read_orders({.gpu = {}, .vram = {}, .optional = true}).error().text(), HasSubstr("--gpu-optional"));
}

// A machine with fake cards 0 .. n - 1.
struct Machine {
  std::uint32_t n_cards = 0;
  std::optional<std::uint32_t> integrated = {};  // the number of the one whose memory is the host's
  Result<OpenedCards> open(const CardRequest& request) {
    return open_cards(
        request, [&](std::uint32_t index, std::optional<std::uint64_t> budget) -> Result<std::unique_ptr<ExpertCard>> {
          const std::string card = "card " + std::to_string(index);
          if (n_cards == 0) return Error(ErrorCode::kUnsupported, card + ": no driver");
          if (index == 7) return Error(ErrorCode::kUnsupported, card + ": of another architecture");
          if (index >= n_cards) return Error(ErrorCode::kNotFound, "there is no " + card);
          auto made = std::make_unique<test::FakeCard>(budget.value_or(4096), static_cast<int>(index));
          made->change_facts().integrated = index == integrated;
          return std::unique_ptr<ExpertCard>(std::move(made));
        });
  }
};

TEST(OpenCards, EachWithItsBudget_InTheOrderOfTheFlag) {
  const auto opened = Machine{2}.open({.gpu = {"1,0"}, .vram = {"8M,4M"}, .optional = false});
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  ASSERT_EQ(opened->cards.size(), 2u);
  EXPECT_EQ(opened->cards[0]->facts().index, 1);
  EXPECT_EQ(opened->cards[0]->facts().budget_bytes, std::uint64_t{8} << 20);
  EXPECT_EQ(opened->cards[1]->facts().index, 0);
  EXPECT_EQ(opened->cards[1]->facts().budget_bytes, std::uint64_t{4} << 20);
  EXPECT_TRUE(opened->missing.empty());
  EXPECT_EQ(opened->host_bytes(), 0u) << "no fake card's memory is the host's";
}

TEST(OpenCards, OfTheHostsMemory_TheyTakeWhatCardsOfItTake) {
  const auto opened = Machine{2, 1}.open({.gpu = {"0,1"}, .vram = {"8M,4M"}, .optional = false});
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  EXPECT_EQ(opened->host_bytes(), std::uint64_t{4} << 20);
}

TEST(OpenCards, ACardThatIsNotThere_IsAnErrorByName_AlsoWhereCardsMayBeMissing) {
  for (const bool optional : {false, true}) {
    const auto opened = Machine{2}.open({.gpu = {"0,2"}, .vram = {}, .optional = optional});
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
    EXPECT_EQ(opened.error().text(), "there is no card 2");
  }
}

// One line says what to do, the other what was done: neither says both.
TEST(OpenCards, WithoutACard_AdviceWhereItIsAnError_NoneWhereTheCpuComputes) {
  const auto error = Machine{0}.open({.gpu = {"3"}, .vram = {}, .optional = false});
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().text(), "card 3: no driver; leave out --gpu to compute on the CPU");
  EXPECT_EQ(error.error().code(), ErrorCode::kUnsupported);
  const auto without = Machine{0}.open({.gpu = {"3"}, .vram = {}, .optional = true});
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE(without->cards.empty());
  EXPECT_EQ(without->missing, Texts{"--gpu 3: card 3: no driver; the CPU computes (--gpu-optional)"});
}

TEST(OpenCards, OneOfSeveralCannotBeUsed_TheOthersAre) {
  const auto opened = Machine{9}.open({.gpu = {"7,1"}, .vram = {}, .optional = true});
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  ASSERT_EQ(opened->cards.size(), 1u);
  EXPECT_EQ(opened->cards[0]->facts().index, 1);
  ASSERT_EQ(opened->missing.size(), 1u);
  EXPECT_EQ(opened->missing[0], "--gpu 7: card 7: of another architecture; the rest computes (--gpu-optional)");
  const auto refused = Machine{9}.open({.gpu = {"7,1"}, .vram = {}, .optional = false});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().text(), HasSubstr("--gpu 7: card 7"));
  EXPECT_THAT(refused.error().text(), HasSubstr("leave out this number"));
}

}  // namespace
}  // namespace terrace::kernels
