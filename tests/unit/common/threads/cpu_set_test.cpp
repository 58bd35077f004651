#include "common/threads/cpu_set.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace terrace {
namespace {

TEST(CpuList, NumbersAndRanges_InAnyOrder) {
  EXPECT_EQ(parse_cpu_list("0").value(), (CpuSet{0}));
  EXPECT_EQ(parse_cpu_list("0-3,8").value(), (CpuSet{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("9,2-2,4-5,0").value(), (CpuSet{0, 2, 4, 5, 9}));
  EXPECT_EQ(parse_cpu_list("65535").value(), (CpuSet{65535}));
}

TEST(CpuList, Misspelt_OneSentenceThatQuotesTheItem) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"0-3,,8", "\"\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"1,", "\"\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"cores", "\"cores\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"-1", "\"-1\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"1-", "\"1-\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"1-2-3", "\"1-2-3\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {" 1", "\" 1\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"+1", "\"+1\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"0x2", "\"0x2\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"1;2", "\"1;2\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
      {"0,3-1", "\"3-1\": ends before it begins; write numbers and ranges such as 0-3,8"},
      {"0-3,2", "\"2\": names CPU 2 a second time; write numbers and ranges such as 0-3,8"},
      {"65536", "\"65536\": CPUs have numbers from 0 to 65535; write numbers and ranges such as 0-3,8"},
      {"0-4294967296", "\"0-4294967296\": CPUs have numbers from 0 to 65535; write numbers and ranges such as 0-3,8"},
  };
  for (const auto& [text, says] : cases) {
    const auto cpus = parse_cpu_list(text);
    ASSERT_FALSE(cpus.ok()) << text;
    EXPECT_EQ(cpus.error().code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(cpus.error().text(), says);
  }
}

TEST(CpuList, FormatIsWhatParseReads) {
  EXPECT_EQ(format_cpu_list({}), "none");
  for (const char* text : {"7", "0-1", "0-3,8", "0,2,4,6-7,100"})
    EXPECT_EQ(format_cpu_list(parse_cpu_list(text).value()), text);
}

// The mask belongs to the thread, so a thread of our own may narrow it.
TEST(ThreadAffinity, ConfinesTheThread_AndGivesBackWhatItHad) {
  const CpuSet before = affinity_of_this_thread();
  ASSERT_FALSE(before.empty());
  CpuSet inside, child, after;
  std::thread([&] {
    {
      const auto confined = ThreadAffinity::confine({before.front()});
      ASSERT_TRUE(confined.ok()) << confined.error().text();
      inside = affinity_of_this_thread();
      std::thread([&] { child = affinity_of_this_thread(); }).join();
    }
    after = affinity_of_this_thread();
  }).join();
  EXPECT_EQ(inside, CpuSet{before.front()});
  EXPECT_EQ(child, CpuSet{before.front()}) << "threads that start meanwhile inherit it";
  EXPECT_EQ(after, before);
  EXPECT_EQ(affinity_of_this_thread(), before) << "other threads notice nothing";
}

TEST(ThreadAffinity, ThatWasMoved_GivesBackOnce) {
  const CpuSet before = affinity_of_this_thread();
  std::thread([&] {
    ThreadAffinity outer;
    {
      auto confined = ThreadAffinity::confine({before.back()});
      ASSERT_TRUE(confined.ok());
      outer = std::move(confined).value();
    }
    EXPECT_EQ(affinity_of_this_thread(), CpuSet{before.back()});
    outer = ThreadAffinity();
    EXPECT_EQ(affinity_of_this_thread(), before);
  }).join();
}

TEST(ThreadAffinity, OfNoCpus_ConfinesNothing) {
  const CpuSet before = affinity_of_this_thread();
  const auto confined = ThreadAffinity::confine({});
  ASSERT_TRUE(confined.ok());
  EXPECT_EQ(affinity_of_this_thread(), before);
}

TEST(ThreadAffinity, CpuThatIsNotThere_IsAnErrorThatNamesIt) {
  std::thread([] {
    const auto confined = ThreadAffinity::confine({60000});
    ASSERT_FALSE(confined.ok());
    EXPECT_EQ(confined.error().code(), ErrorCode::kIo);
    EXPECT_EQ(confined.error().text(), "a thread cannot be kept on CPU 60000: Invalid argument");
  }).join();
}

}  // namespace
}  // namespace terrace
