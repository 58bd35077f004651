#include "common/base/seldom.h"

#include <gtest/gtest.h>

namespace terrace {
namespace {

using std::chrono::seconds;

TEST(Seldom, TellsOnceAPeriodAndHowManyWereLeftOut) {
  Seldom seldom(seconds(60));
  const Seldom::Clock::time_point start{seconds(1000)};
  EXPECT_EQ(seldom.happened(start), 0u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(seldom.happened(start + seconds(i)), std::nullopt);
  EXPECT_EQ(seldom.happened(start + seconds(59)), std::nullopt);
  EXPECT_EQ(seldom.happened(start + seconds(60)), 8u);
  EXPECT_EQ(seldom.happened(start + seconds(61)), std::nullopt);
  EXPECT_EQ(seldom.happened(start + seconds(600)), 1u);
  EXPECT_EQ(seldom.happened(start + seconds(1200)), 0u);
}

TEST(Seldom, WhatWasLeftOut_IsSaidWhereThereIsAny) {
  EXPECT_EQ(and_left_out(0), "");
  EXPECT_EQ(and_left_out(12), " (12 more like it were not logged since the last one)");
}

}  // namespace
}  // namespace terrace
