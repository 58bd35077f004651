#include "common/threads/start.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <string>

#include "tests/unit/common/threads/no_threads.h"

namespace terrace {
namespace {

TEST(StartThread, Body_RunsUnderItsName) {
  std::string name;
  auto started = start_thread("terrace-test", [&] {
    std::array<char, 32> read{};
    pthread_getname_np(pthread_self(), read.data(), read.size());
    name = read.data();
  });
  ASSERT_TRUE(started.ok()) << started.error().text();
  started->join();
  EXPECT_EQ(name, "terrace-test");
}

TEST(StartThread, SystemGivesNone_NamesTheThreadAndTheLimits) {
  bool ran = false;
  const test::NoThreads limit;
  const auto started = start_thread("terrace-test", [&] { ran = true; });
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code(), ErrorCode::kOutOfMemory);
  for (const char* part :
       {"thread terrace-test ", "Resource temporarily unavailable", "RLIMIT_NPROC", "TasksMax", "pids.max"})
    EXPECT_NE(started.error().text().find(part), std::string::npos) << part << ": " << started.error().text();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace terrace
