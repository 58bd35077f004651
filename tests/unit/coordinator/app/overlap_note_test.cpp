#include "coordinator/app/overlap_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::app {
namespace overlap_note_test {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(OverlapNote, ACardWhoseDriverEndsLongKernels_IsToldWhereOthersComputeBesideIt) {
  test::FakeCard card(4096, 1);
  arch::TrunkOptions trunk;
  trunk.card = &card;
  trunk.on_card.emplace();
  manifest::ModelExperts experts;
  experts.n_experts = 128;
  experts.top_k = 8;
  EXPECT_THAT(overlap_note(trunk, experts, {}), HasSubstr("run in up to 2 parts"));
  EXPECT_THAT(overlap_note(trunk, experts, {}), Not(HasSubstr("ends kernels")));
  card.change_facts().ends_long_kernels = true;
  EXPECT_THAT(overlap_note(trunk, experts, {}), HasSubstr("no step runs on card 1 by itself: its driver ends kernels"));
  EXPECT_EQ(overlap_note(trunk, experts, {.nodes = false, .all_card = true}), "") << "nothing waits for anybody";
}

}  // namespace overlap_note_test
}  // namespace terrace::app
