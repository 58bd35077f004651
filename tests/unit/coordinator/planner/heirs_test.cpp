#include "coordinator/planner/heirs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/planner/share.h"

namespace terrace::planner {
namespace heirs_test {

using Ids = std::vector<std::uint16_t>;
using Gone = std::vector<std::uint8_t>;

constexpr std::uint64_t kPlenty = 1'000'000;
const std::vector<std::string> kThreeNodes = {"box1:9000", "box2:9000", "box3:9000"};
constexpr auto nobody_holds = [](std::size_t, std::uint32_t, std::uint16_t) { return false; };

legs::OwnerTable quarters() {
  auto table = parse_share("host=0-2,box1:9000=3-5,box2:9000=6-8,box3:9000=9-11",
                           {.nodes = kThreeNodes, .n_layers = 2, .n_experts = 12, .epoch = 1});
  TERRACE_CHECK(table.ok(), "the test's own share");
  return std::move(table).value();
}

// Nodes of that room and speed; slabs of 50 bytes in the first layer, 150 in the second, that take twice that.
HeirTerms terms(std::vector<std::uint64_t> room, std::vector<double> seconds = {1, 1, 1, 1}) {
  return {std::move(room), std::move(seconds), {50, 150}, {100, 300}};
}

Ids owner_ids(const legs::OwnerTable& table, std::uint32_t layer) {
  const auto row = table.owners(layer);
  return {row.begin(), row.end()};
}

TEST(OwnersWithHeirs, RoomForAll_SurvivorsHaveThemInTurnAndTheHostNone) {
  const auto after =
      owners_with_heirs(quarters(), Gone{0, 0, 1, 0}, 7, terms({0, kPlenty, kPlenty, kPlenty}), nobody_holds);
  EXPECT_EQ(after.epoch(), 7u);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 0, 1, 1, 1, 1, 3, 1, 3, 3, 3}));
  EXPECT_EQ(owner_ids(after, 1), owner_ids(after, 0));
}

TEST(OwnersWithHeirs, SurvivorThreeTimesAsFast_HasThemAll) {
  const auto after = owners_with_heirs(quarters(), Gone{0, 0, 1, 0}, 7,
                                       terms({0, kPlenty, kPlenty, kPlenty}, {1, 3, 1, 1}), nobody_holds);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 0, 1, 1, 1, 3, 3, 3, 3, 3, 3}));
}

TEST(OwnersWithHeirs, LittleRoom_LowLayersAndIdsFirstAndTheRestStaysWithTheHost) {
  // box1 takes one of each layer's; box3 one of the first layer, and has no room for one of the second.
  const auto after = owners_with_heirs(quarters(), Gone{0, 0, 1, 0}, 7, terms({0, 400, 0, 399}), nobody_holds);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 0, 1, 1, 1, 1, 3, 1, 3, 3, 3}));
  EXPECT_EQ(owner_ids(after, 1), (Ids{0, 0, 0, 1, 1, 1, 0, 0, 0, 3, 3, 3}));
}

TEST(OwnersWithHeirs, NobodyHasRoom_TheHostKeepsThem) {
  const auto after = owners_with_heirs(quarters(), Gone{0, 0, 1, 0}, 7, terms({kPlenty, 0, 0, 99}), nobody_holds);
  EXPECT_EQ(after.n_slabs(0), 12u);
}

// By the plan's figures box2's stay, and box1's, as long as the host's memory has them: 600 bytes each.
TEST(OwnersWithHeirs, ThoseThatStay_AreTheHostsWhileItHasRoomForAllOfThem) {
  HeirTerms with_figures = terms({0, kPlenty, kPlenty, kPlenty});
  with_figures.stays = {0, 1, 1, 0};
  with_figures.host_room = 600;
  const auto owned_by_host = [&](const Gone& gone) {
    return owners_with_heirs(quarters(), gone, 7, with_figures, nobody_holds).n_slabs(0);
  };
  EXPECT_EQ(owned_by_host({0, 0, 1, 0}), 12u);
  EXPECT_EQ(owned_by_host({0, 0, 0, 1}), 6u) << "of this one nothing is said";
  EXPECT_EQ(owned_by_host({0, 0, 1, 1}), 12u) << "each goes where its own loss says";
  EXPECT_EQ(owned_by_host({0, 1, 1, 0}), 6u) << "both are more than the room";
  with_figures.host_room = 599;
  EXPECT_EQ(owned_by_host({0, 0, 1, 0}), 6u);
}

TEST(OwnersWithHeirs, WhatWasInherited_StaysAndCountsInTheRoom) {
  // box3 has box2's experts of the first layer; box1 is lost too.
  const auto box3_holds = [](std::size_t leg, std::uint32_t layer, std::uint16_t expert) {
    return leg == 3 && layer == 0 && expert >= 6 && expert < 9;
  };
  const auto after = owners_with_heirs(quarters(), Gone{0, 1, 1, 0}, 9, terms({0, kPlenty, 0, 500}), box3_holds);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 0, 3, 3, 0, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(owner_ids(after, 1), (Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3}));
}

TEST(OwnersWithHeirs, HostsOwnExperts_AreNotDealt) {
  const auto after =
      owners_with_heirs(quarters(), Gone{0, 1, 1, 1}, 9, terms({kPlenty, kPlenty, kPlenty, kPlenty}), nobody_holds);
  EXPECT_EQ(after.n_slabs(0), 24u);
  const auto whole = owners_with_heirs(quarters(), Gone(4), 9, terms({0, kPlenty, kPlenty, kPlenty}), nobody_holds);
  EXPECT_EQ(owner_ids(whole, 0), owner_ids(quarters(), 0));
}

TEST(InheritanceOf, ALostNode_SaysWhoGetsWhatAndHowManyBytesMove) {
  const Inheritance result = inheritance_of(quarters(), 2, terms({0, 400, 0, 399}));
  ASSERT_EQ(result.heirs.size(), 2u);
  EXPECT_EQ(result.heirs[0].leg, 1u);
  EXPECT_EQ(result.heirs[0].experts, 2u);
  EXPECT_EQ(result.heirs[0].bytes, 100u);
  EXPECT_EQ(result.heirs[1].leg, 3u);
  EXPECT_EQ(result.heirs[1].experts, 1u);
  EXPECT_EQ(result.host_experts, 3u);
}

}  // namespace heirs_test
}  // namespace terrace::planner
