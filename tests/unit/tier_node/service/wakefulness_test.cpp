#include "tier_node/service/wakefulness.h"

#include <gtest/gtest.h>

namespace terrace::node {
namespace wakefulness_test {

using std::chrono::microseconds;

constexpr Wakefulness::TimePoint kStart{std::chrono::hours(1)};
constexpr microseconds kShort = kSpinTime / 2, kLong = kSpinTime * 2;

// A request `pause` after the last answer, answered 3 us later; whether the thread is awake then.
struct Thread {
  explicit Thread(Waiting waiting) : wakefulness(waiting) {}
  bool serve_after(microseconds pause) {
    wakefulness.asked(now += pause);
    wakefulness.answered(now += microseconds(3));
    return wakefulness.awake(now);
  }
  bool serve_soon(int times) {
    bool awake = false;
    for (int i = 0; i < times; ++i) awake = serve_after(kShort);
    return awake;
  }
  Wakefulness wakefulness;
  Wakefulness::TimePoint now = kStart;
};

TEST(Wakefulness, RequestsThatComeSoon_KeepItAwakeForASpin) {
  Thread thread(Waiting::kSpinThenPark);
  EXPECT_FALSE(thread.serve_after(kLong));
  EXPECT_FALSE(thread.serve_soon(Wakefulness::kSoonInARow - 1));
  EXPECT_TRUE(thread.serve_soon(1));
  EXPECT_TRUE(thread.wakefulness.awake(thread.now + kSpinTime - microseconds(1)));
  EXPECT_FALSE(thread.wakefulness.awake(thread.now + kSpinTime));
}

TEST(Wakefulness, OneThatComesLate_EndsItUntilManyComeSoonAgain) {
  Thread thread(Waiting::kSpinThenPark);
  ASSERT_TRUE(thread.serve_soon(Wakefulness::kSoonInARow + 1));
  EXPECT_FALSE(thread.serve_after(kSpinTime)) << "a spin would just have missed it";
  EXPECT_FALSE(thread.serve_soon(Wakefulness::kSoonInARow - 1));
  EXPECT_TRUE(thread.serve_soon(1));
}

TEST(Wakefulness, WhereWaitsBlock_Never) {
  EXPECT_FALSE(Thread(Waiting::kBlock).serve_soon(2 * Wakefulness::kSoonInARow));
}

}  // namespace wakefulness_test
}  // namespace terrace::node
