#include "coordinator/legs/retry_schedule.h"

#include <gtest/gtest.h>

namespace terrace::legs {
namespace retry_schedule_test {

using std::chrono::milliseconds;
using TimePoint = RetrySchedule::TimePoint;

constexpr RetryPauses kPauses{.first = milliseconds(100), .longest = milliseconds(500), .steady = milliseconds(10'000)};

TimePoint at(int ms) { return TimePoint(milliseconds(1'000'000 + ms)); }

TEST(RetrySchedule, NobodyLost_NobodyIsDue) {
  const RetrySchedule schedule(2, kPauses);
  EXPECT_FALSE(schedule.due(at(0)));
  EXPECT_FALSE(schedule.next());
}

TEST(RetrySchedule, EachFailureDoublesThePause_UpToTheLongest) {
  RetrySchedule schedule(1, kPauses);
  schedule.lost(0, at(0));
  int now = 0;
  for (const int pause : {100, 200, 400, 500, 500}) {
    EXPECT_EQ(schedule.next(), at(now + pause));
    EXPECT_FALSE(schedule.due(at(now + pause - 1)));
    now += pause;
    EXPECT_EQ(schedule.due(at(now)), 0u);
    schedule.failed(0, at(now));
  }
}

TEST(RetrySchedule, SeveralDue_WhoFailedLastIsTriedLast) {
  RetrySchedule schedule(3, kPauses);
  schedule.lost(1, at(0));
  schedule.lost(0, at(1));
  schedule.lost(2, at(2));
  EXPECT_EQ(schedule.due(at(1000)), 1u);
  schedule.failed(1, at(1000));
  EXPECT_EQ(schedule.due(at(2000)), 0u);
  schedule.failed(0, at(2000));
  EXPECT_EQ(schedule.due(at(3000)), 2u);
  schedule.failed(2, at(3000));
  EXPECT_EQ(schedule.due(at(4000)), 1u);
}

TEST(RetrySchedule, Back_IsTriedNoMore) {
  RetrySchedule schedule(2, kPauses);
  schedule.lost(0, at(0));
  schedule.back(0, at(150));
  EXPECT_FALSE(schedule.due(at(100'000)));
  EXPECT_FALSE(schedule.next());
}

TEST(RetrySchedule, LostAgainSoon_GoesOnGrowing_LostMuchLaterBeginsAnew) {
  RetrySchedule schedule(1, kPauses);
  schedule.lost(0, at(0));
  schedule.back(0, at(100));
  schedule.lost(0, at(200));
  EXPECT_EQ(schedule.next(), at(400));
  schedule.back(0, at(400));
  schedule.lost(0, at(10'400));
  EXPECT_EQ(schedule.next(), at(10'500));
}

TEST(RetrySchedule, GivenUp_IsNeverTried) {
  RetrySchedule schedule(1, kPauses);
  schedule.lost(0, at(0));
  schedule.give_up(0);
  EXPECT_FALSE(schedule.due(at(100'000)));
}

}  // namespace retry_schedule_test
}  // namespace terrace::legs
