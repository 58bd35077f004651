#include "coordinator/planner/replan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/planner/share.h"

namespace terrace::planner {
namespace replan_test {

using Ids = std::vector<std::uint16_t>;
using Gone = std::vector<std::uint8_t>;

const std::vector<std::string> kThreeNodes = {"box1:9000", "box2:9000", "box3:9000"};

legs::OwnerTable planned(const char* spec) {
  auto table = parse_share(spec, {.nodes = kThreeNodes, .n_layers = 2, .n_experts = 12, .epoch = 1});
  TERRACE_CHECK(table.ok(), "the test's own share");
  return std::move(table).value();
}
const char* const kQuarters = "host=0-2,box1:9000=3-5,box2:9000=6-8,box3:9000=9-11";

Ids owner_ids(const legs::OwnerTable& table, std::uint32_t layer) {
  const auto row = table.owners(layer);
  return {row.begin(), row.end()};
}

constexpr auto nobody_holds = [](std::size_t, std::uint32_t, std::uint16_t) { return false; };

TEST(OwnersWithout, NobodyGone_IsThePlannedTableUnderItsNewNumber) {
  const legs::OwnerTable before = planned(kQuarters);
  const legs::OwnerTable after = owners_without(before, Gone(4), 9, nobody_holds);
  EXPECT_EQ(after.epoch(), 9u);
  EXPECT_EQ(after.leg_names(), before.leg_names());
  for (std::uint32_t layer = 0; layer < 2; ++layer) EXPECT_EQ(owner_ids(after, layer), owner_ids(before, layer));
}

TEST(OwnersWithout, NodeGone_HostHasItsExpertsAndNobodyElseChanges) {
  const legs::OwnerTable after = owners_without(planned(kQuarters), Gone{0, 0, 1, 0}, 2, nobody_holds);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 0, 1, 1, 1, 0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(owner_ids(after, 1), owner_ids(after, 0));
  EXPECT_EQ(after.n_slabs(0), 12u);
  EXPECT_EQ(after.n_slabs(2), 0u);
  EXPECT_EQ(after.leg_names(), planned(kQuarters).leg_names()) << "legs keep their places";
}

TEST(OwnersWithout, EveryNodeGone_HostHasAll) {
  const legs::OwnerTable after = owners_without(planned(kQuarters), Gone{0, 1, 1, 1}, 2, nobody_holds);
  EXPECT_EQ(after.n_slabs(0), 24u);
}

TEST(OwnersWithout, SlabHeldByALeg_GoesThereAndNotToTheHost) {
  const auto box3_holds_7_of_layer_1 = [](std::size_t leg, std::uint32_t layer, std::uint16_t expert) {
    return leg == 3 && layer == 1 && expert == 7;
  };
  const legs::OwnerTable after = owners_without(planned(kQuarters), Gone{0, 0, 1, 0}, 2, box3_holds_7_of_layer_1);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 0, 1, 1, 1, 0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(owner_ids(after, 1), (Ids{0, 0, 0, 1, 1, 1, 0, 3, 0, 3, 3, 3}));
}

TEST(OwnersWithout, SlabsHeldBySeveral_GoInTurnToWhoOwnsLeast) {
  const auto box1_and_box3_hold_all = [](std::size_t leg, std::uint32_t, std::uint16_t) {
    return leg == 1 || leg == 3;
  };
  const legs::OwnerTable uneven = planned("host=0-1,box1:9000=2-3,box2:9000=4-8,box3:9000=9-11");
  const legs::OwnerTable after = owners_without(uneven, Gone{0, 0, 1, 0}, 2, box1_and_box3_hold_all);
  EXPECT_EQ(owner_ids(after, 0), (Ids{0, 0, 1, 1, 1, 1, 3, 1, 3, 3, 3, 3}));
}

TEST(OwnersWithout, HolderThatIsGoneToo_IsNotAsked) {
  const auto box3_holds_all = [](std::size_t leg, std::uint32_t, std::uint16_t) {
    EXPECT_NE(leg, 2u);
    EXPECT_NE(leg, 3u);
    return false;
  };
  const legs::OwnerTable after = owners_without(planned(kQuarters), Gone{0, 0, 1, 1}, 2, box3_holds_all);
  EXPECT_EQ(after.n_slabs(0), 18u);
}

}  // namespace replan_test
}  // namespace terrace::planner
