#include "coordinator/app/probe_timing.h"

#include <gtest/gtest.h>

namespace terrace::app {
namespace probe_timing_test {

TEST(DecodeCost, FromTwoBatches_IsWhatBothTake) {
  const DecodeCost cost = decode_cost(17e-6, 2e-6, 16);
  EXPECT_DOUBLE_EQ(cost.each, 1e-6);
  EXPECT_DOUBLE_EQ(cost.fixed, 1e-6);
  EXPECT_DOUBLE_EQ(decode_cost(32e-6, 1e-6, 16).fixed, 0) << "never less than nothing";
}

TEST(DecodeCost, LargerBatchSeemsNoSlower_AnExpertStillTakesTime) {
  for (const double one : {16e-6, 17e-6, 1.0}) {
    const DecodeCost cost = decode_cost(16e-6, one, 16);
    EXPECT_DOUBLE_EQ(cost.each, 1e-6);
    EXPECT_DOUBLE_EQ(cost.fixed, 0);
  }
}

}  // namespace probe_timing_test
}  // namespace terrace::app
