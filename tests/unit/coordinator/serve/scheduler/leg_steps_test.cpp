// Steps by leg: differences of the board's counters.
#include "coordinator/serve/scheduler/leg_steps.h"

#include <gtest/gtest.h>

namespace terrace::serve {
namespace {

legs::LegCounters counted(std::uint64_t batches, std::uint64_t wait_us, std::uint64_t compute_us) {
  legs::LegCounters counters;
  counters.batches = batches;
  counters.wait_us = wait_us;
  counters.compute_us = compute_us;
  return counters;
}

TEST(LegSteps, OfEachLeg_AreWhatEachStepAdded) {
  legs::LegBoard board;
  legs::LegEntry& host = board.entry("host", legs::LegKind::kHost);
  legs::LegEntry& node = board.entry("box1:9000", legs::LegKind::kNode);
  host.set_counters(counted(7, 0, 9'000'000));  // before there was a scheduler
  LegSteps steps(&board);
  host.set_counters(counted(9, 0, 9'002'000));
  node.set_counters(counted(2, 300, 1000));
  steps.step_ended();
  node.set_counters(counted(4, 700, 1500));
  steps.step_ended();

  ASSERT_EQ(steps.times().size(), 2U);
  const LegStepTimes &of_host = steps.times()[0], &of_node = steps.times()[1];
  EXPECT_EQ(of_host.compute_seconds.count(), 1U) << "a step without a batch of the leg is none of it";
  EXPECT_NEAR(of_host.compute_seconds.sum(), 0.002, 1e-9);
  EXPECT_EQ(of_host.wait_seconds.count(), 1U);
  EXPECT_EQ(of_node.wait_seconds.count(), 2U);
  EXPECT_NEAR(of_node.wait_seconds.sum(), 700e-6, 1e-9);
  EXPECT_NEAR(of_node.compute_seconds.sum(), 1500e-6, 1e-9);
}

TEST(LegSteps, OfALegThatComesLater_BeginWithIt) {
  legs::LegBoard board;
  LegSteps steps(&board);
  legs::LegEntry& node = board.entry("box1:9000", legs::LegKind::kNode);
  steps.step_ended();
  node.set_counters(counted(1, 20, 30));
  steps.step_ended();
  ASSERT_EQ(steps.times().size(), 1U);
  EXPECT_EQ(steps.times()[0].wait_seconds.count(), 1U);
}

TEST(LegSteps, WithoutABoard_AreNone) {
  LegSteps steps(nullptr);
  steps.step_ended();
  EXPECT_TRUE(steps.times().empty());
}

}  // namespace
}  // namespace terrace::serve
