// One call for many connections that were woken.
#include "coordinator/serve/http/wakeups.h"

#include <gtest/gtest.h>

namespace terrace::serve::http {
namespace {

TEST(Wakeups, OutsideABatch_CallOnceUntilTaken) {
  int calls = 0;
  Wakeups wakeups([&] { ++calls; });
  wakeups.wake({});
  wakeups.wake({});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(wakeups.take().size(), 2U);
  EXPECT_EQ(wakeups.take().size(), 0U);
  wakeups.wake({});
  EXPECT_EQ(calls, 2);
}

TEST(Wakeups, OfABatch_CallOnceAtItsEnd) {
  int calls = 0;
  Wakeups wakeups([&] { ++calls; });
  wakeups.begin_batch();
  for (int i = 0; i < 8; ++i) wakeups.wake({});
  wakeups.begin_batch();  // another thread's
  wakeups.end_batch();
  EXPECT_EQ(calls, 0);
  wakeups.end_batch();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(wakeups.take().size(), 8U);
}

TEST(Wakeups, ABatchWithoutAny_CallsNobody) {
  int calls = 0;
  Wakeups wakeups([&] { ++calls; });
  wakeups.begin_batch();
  wakeups.end_batch();
  EXPECT_EQ(calls, 0);
}

// What was woken before a batch began was called for already; it is not called again.
TEST(Wakeups, ABatchWhileACallIsDue_CallsNoSecondTime) {
  int calls = 0;
  Wakeups wakeups([&] { ++calls; });
  wakeups.wake({});
  wakeups.begin_batch();
  wakeups.wake({});
  wakeups.end_batch();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(wakeups.take().size(), 2U);
}

}  // namespace
}  // namespace terrace::serve::http
