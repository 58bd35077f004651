#include "coordinator/legs/soft_limit.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace terrace::legs {
namespace soft_limit_test {

using namespace std::chrono_literals;

constexpr Priority kDecode = Priority::kDecode;

TEST(SoftLimits, NothingMeasured_TheFirstLimit) {
  const SoftLimits limits(2s);
  EXPECT_FALSE(limits.measured());
  EXPECT_EQ(limits.soft(kDecode, 8), 2s);
}

TEST(SoftLimits, FastNode_FiveMillisecondsAboveThePlan) {
  SoftLimits limits(2s);
  for (int i = 0; i < 100; ++i) limits.answered(kDecode, 8, 200us, 100us, false);
  EXPECT_GT(limits.planned(8), 150us);
  EXPECT_LT(limits.planned(8), 250us);
  EXPECT_EQ(limits.soft(kDecode, 8), limits.planned(8) + 5ms);
}

TEST(SoftLimits, SlowNode_FourTimesThePlan) {
  SoftLimits limits(2s);
  for (int i = 0; i < 100; ++i) limits.answered(kDecode, 8, 100ms, 90ms, false);
  EXPECT_EQ(limits.soft(kDecode, 8), 4 * limits.planned(8));
  EXPECT_GT(limits.planned(8), 99ms);
  EXPECT_LT(limits.planned(8), 101ms);
}

TEST(SoftLimits, MorePairs_CostMore_AndUnmeasuredSizesTheCostOfSmallerOnes) {
  SoftLimits limits(2s);
  for (int i = 0; i < 100; ++i) limits.answered(kDecode, 1, 2ms, 1ms, false);
  EXPECT_GT(limits.planned(512), 400ms) << "a pair of a large batch costs no more than one of a small";
  EXPECT_LT(limits.planned(512), 600ms);
  for (int i = 0; i < 100; ++i) limits.answered(Priority::kPrompt, 512, 21ms, 20ms, false);
  EXPECT_LT(limits.planned(512), 25ms);
  EXPECT_LT(limits.planned(1), 3ms);
}

TEST(SoftLimits, TheWorstOfTheLastThousandOfItsKind) {
  SoftLimits limits(2s);
  limits.answered(kDecode, 8, 40ms, 100us, false);
  for (int i = 0; i < 999; ++i) limits.answered(kDecode, 8, 200us, 100us, false);
  EXPECT_EQ(limits.soft(kDecode, 8), 60ms);
  EXPECT_LT(limits.soft(Priority::kPrompt, 8), 10ms) << "prompts are another kind";
  limits.answered(kDecode, 8, 200us, 100us, false);
  EXPECT_LT(limits.soft(kDecode, 8), 10ms) << "it was the one before the last thousand";
}

TEST(SoftLimits, LateBatches_TellTheCostButAreNotUsual) {
  SoftLimits limits(2s);
  for (int i = 0; i < 100; ++i) limits.answered(kDecode, 8, 2ms, 1900us, false);
  const auto before = limits.planned(8);
  limits.answered(kDecode, 8, 500ms, 499ms, true);
  EXPECT_GT(limits.planned(8), before) << "re-costed";
  EXPECT_EQ(limits.soft(kDecode, 8), 4 * limits.planned(8)) << "not 1.5 times 500 ms";
}

// A node that dies soon after is found out within the limits from before: hard is 20 times soft.
TEST(SoftLimits, AStallOfAllBatchesUnderWay_AtMostDoublesTheLimit) {
  for (const StepClock::Duration usual : {StepClock::Duration(200us), StepClock::Duration(8ms)}) {
    SoftLimits limits(2s);
    for (int i = 0; i < 100; ++i) limits.answered(kDecode, 8, usual, usual / 2, false);
    const auto before = limits.soft(kDecode, 8);
    for (int i = 0; i < 4; ++i) limits.answered(kDecode, 8, 1900ms, usual / 2, true);
    EXPECT_GT(limits.soft(kDecode, 8), before);
    EXPECT_LE(limits.soft(kDecode, 8), 2 * before);
  }
}

TEST(SoftLimits, ANodeThatIsSlowFromNowOn_IsLearnedWithinThirtyLateBatches) {
  for (const StepClock::Duration usual : {StepClock::Duration(200us), StepClock::Duration(8ms)}) {
    SoftLimits limits(2s);
    for (int i = 0; i < 100; ++i) limits.answered(kDecode, 8, usual, usual / 2, false);
    const StepClock::Duration slow = std::max<StepClock::Duration>(20 * usual, 100ms);
    int n_late = 0;
    for (int i = 0; i < 200; ++i) {
      const bool late = slow > limits.soft(kDecode, 8);
      n_late += late ? 1 : 0;
      limits.answered(kDecode, 8, slow, slow / 2, late);
    }
    EXPECT_GT(n_late, 0);
    EXPECT_LE(n_late, 30);
    EXPECT_LT(limits.planned(8), slow * 5 / 4) << "in time again, it is believed whole";
    EXPECT_GT(limits.planned(8), slow * 3 / 4);
  }
}

TEST(SoftLimits, NodesTimeIsNotBelievedBeyondTheWhole) {
  SoftLimits limits(2s);
  for (int i = 0; i < 10; ++i) limits.answered(kDecode, 8, 1ms, std::chrono::hours(1), false);
  EXPECT_LT(limits.planned(8), 2ms);
}

TEST(SoftLimits, ForgottenWorst_KeepsCosts) {
  SoftLimits limits(2s);
  limits.answered(kDecode, 8, 1s, 1ms, false);
  limits.forget_worst();
  EXPECT_TRUE(limits.measured());
  EXPECT_EQ(limits.soft(kDecode, 8), 4 * limits.planned(8));
}

TEST(SoftLimits, HardIsTwentySoftAndNeverBelowTwoSeconds) {
  EXPECT_EQ(SoftLimits::hard(5ms), 2s);
  EXPECT_EQ(SoftLimits::hard(1s), 20s);
}

}  // namespace soft_limit_test
}  // namespace terrace::legs
