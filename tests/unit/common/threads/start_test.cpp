#include "common/threads/start.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <latch>
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

// Who looks at a program that has said that it is ready sees its threads as they will be.
TEST(StartThread, Returned_ItHasItsName) {
  for (int i = 0; i < 200; ++i) {
    std::latch seen(1);
    auto started = start_thread("terrace-named", [&] { seen.wait(); });
    ASSERT_TRUE(started.ok()) << started.error().text();
    bool found = false;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      found = found || name == "terrace-named";
    }
    seen.count_down();
    started->join();
    ASSERT_TRUE(found) << "start " << i;
  }
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
