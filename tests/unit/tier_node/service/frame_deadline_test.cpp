#include "tier_node/service/frame_deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::node {
namespace frame_deadline_test {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::UnfinishedFrame;

constexpr FrameTimeLimit kLimit{10s, 1000};
constexpr TimePoint kStart{1h};

TEST(FrameDeadline, NothingUnfinished_HasNone) {
  FrameDeadline deadline;
  EXPECT_EQ(deadline.at(), TimePoint::max());
  ASSERT_TRUE(deadline.check({.number = 3, .bytes = 10}, kLimit, kStart).ok());
  EXPECT_NE(deadline.at(), TimePoint::max());
  deadline.clear();
  EXPECT_EQ(deadline.at(), TimePoint::max());
}

TEST(FrameDeadline, Stopped_LateWhenTheBaseAndTheTimeOfWhatCameAreOver) {
  FrameDeadline deadline;
  const UnfinishedFrame frame{.number = 0, .bytes = 2500, .frame_bytes = std::uint64_t{1} << 30};
  ASSERT_TRUE(deadline.check(frame, kLimit, kStart).ok());
  EXPECT_EQ(deadline.at(), kStart + 12'500ms) << "the length that its header states buys no time";
  EXPECT_TRUE(deadline.check(frame, kLimit, kStart + 12'499ms).ok());
  const Status late = deadline.check(frame, kLimit, kStart + 12'500ms);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), ErrorCode::kDeadline);
  EXPECT_EQ(late.error().text(),
            "2500 of 1073741824 bytes of a frame came in 12.5s; 10s are allowed, and a second more for each 1000 bytes "
            "that came");
}

// As over UCX, which does not say how much has come.
TEST(FrameDeadline, OnlyTheLengthIsKnown_HasTheTimeOfAllOfIt) {
  FrameDeadline deadline;
  const UnfinishedFrame frame{.number = 0, .bytes = 30'000, .frame_bytes = 30'000};
  ASSERT_TRUE(deadline.check(frame, kLimit, kStart).ok());
  EXPECT_EQ(deadline.at(), kStart + 40s);
  const Status late = deadline.check(frame, kLimit, kStart + 40s);
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.error().text(), HasSubstr("not all 30000 bytes of a frame came in 40s"));
}

TEST(FrameDeadline, AtTheLeastRate_NeverLate_BelowItAtLast) {
  for (const std::uint64_t rate : {999u, 1000u}) {
    FrameDeadline deadline;
    bool late = false;
    for (std::uint64_t second = 0; second < 100'000 && !late; ++second) {
      const UnfinishedFrame frame{.number = 0, .bytes = 1 + second * rate};
      late = !deadline.check(frame, kLimit, kStart + std::chrono::seconds(second)).ok();
    }
    EXPECT_EQ(late, rate < kLimit.least_rate) << rate;
  }
}

TEST(FrameDeadline, NextFrame_HasItsOwnTime) {
  FrameDeadline deadline;
  for (std::uint64_t number = 0; number < 100; ++number)
    ASSERT_TRUE(deadline.check({.number = number, .bytes = 1}, kLimit, kStart + number * 9s).ok());
  EXPECT_FALSE(deadline.check({.number = 99, .bytes = 1}, kLimit, kStart + 99 * 9s + 11s).ok());
}

TEST(FrameDeadline, HeaderNotWhole_TellsNoLength) {
  FrameDeadline deadline;
  ASSERT_TRUE(deadline.check({.number = 0, .bytes = 7}, kLimit, kStart).ok());
  EXPECT_THAT(deadline.check({.number = 0, .bytes = 7}, kLimit, kStart + 1h).error().text(),
              HasSubstr("7 bytes of a frame came in 1h"));
}

}  // namespace frame_deadline_test
}  // namespace terrace::node
