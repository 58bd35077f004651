#include "coordinator/legs/leg_board.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace terrace::legs {
namespace leg_board_test {

TEST(LegBoard, OneEntryAName_InTheOrderTheyCame) {
  LegBoard board;
  LegEntry& host = board.entry("host", LegKind::kHost);
  LegEntry& box = board.entry("box1:9000", LegKind::kNode);
  EXPECT_EQ(&board.entry("host", LegKind::kHost), &host);
  EXPECT_EQ(board.find("box1:9000"), &box);
  EXPECT_EQ(board.find("box2:9000"), nullptr);
  const auto reports = board.report();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].name, "host");
  EXPECT_EQ(reports[1].kind, LegKind::kNode);
}

TEST(LegBoard, StateThatStays_KeepsReasonAndTime) {
  LegBoard board;
  LegEntry& box = board.entry("box1:9000", LegKind::kNode);
  const std::uint64_t before = board.changes();
  box.set_state(LegState::kLost, "the link was cut");
  const LegReport first = box.report();
  box.set_state(LegState::kLost, "again");
  EXPECT_EQ(box.report().reason, "the link was cut");
  EXPECT_EQ(box.report().since, first.since);
  EXPECT_EQ(board.changes(), before + 1);
  box.set_state(LegState::kOk, "");
  EXPECT_EQ(box.report().reason, "");
  EXPECT_EQ(box.state(), LegState::kOk);
}

TEST(LegBoard, WhoWaitsForAChange_IsToldOfIt) {
  constexpr std::chrono::milliseconds kPatience{60'000};
  LegBoard board;
  LegEntry& box = board.entry("box1:9000", LegKind::kNode);
  const std::uint64_t before = board.changes();
  EXPECT_FALSE(board.wait_for_change(before, std::chrono::milliseconds(1)));
  std::thread changes([&] { box.set_state(LegState::kLost, "the link was cut"); });
  EXPECT_TRUE(board.wait_for_change(before, kPatience));
  changes.join();
  EXPECT_TRUE(board.wait_for_change(before, kPatience)) << "what has changed already is not waited for";
  const std::uint64_t lost = board.changes();
  std::thread wakes([&] { board.wake(); });
  EXPECT_TRUE(board.wait_for_change(lost, kPatience));
  wakes.join();
}

TEST(LegBoard, CountersOfTheStepAndOfOthersAreAdded) {
  LegBoard board;
  LegEntry& box = board.entry("box1:9000", LegKind::kNode);
  LegCounters counted;
  counted.pairs = 7;
  counted.losses = 1;
  box.set_counters(counted);
  box.add(&LegCounters::losses, 2);
  EXPECT_EQ(box.report().counters.pairs, 7u);
  EXPECT_EQ(box.report().counters.losses, 3u);
}

TEST(LegBoard, EveryCounterIsInTheList_Once) {
  LegCounters counters;
  std::set<std::uint64_t*> seen;
  for (const LegCounter counter : all_counters()) seen.insert(&(counters.*counter));
  EXPECT_EQ(seen.size(), kLegCounters);
}

TEST(LegBoard, WrittenAndReadAtOnce) {
  LegBoard board;
  LegEntry& box = board.entry("box1:9000", LegKind::kNode);
  std::thread reader([&] {
    std::vector<LegReport> reports;
    for (int i = 0; i < 2000; ++i) board.report(reports);
  });
  LegCounters counted;
  for (int i = 0; i < 2000; ++i) {
    ++counted.pairs;
    box.set_counters(counted);
    box.set_state(i % 2 == 0 ? LegState::kSuspect : LegState::kOk, "late");
    (void)board.entry("box" + std::to_string(i % 5), LegKind::kNode);
  }
  reader.join();
  EXPECT_EQ(box.report().counters.pairs, 2000u);
}

TEST(LegState, Names) {
  EXPECT_STREQ(name(LegState::kOk), "ok");
  EXPECT_STREQ(name(LegState::kSuspect), "suspect");
  EXPECT_STREQ(name(LegState::kLost), "lost");
  EXPECT_STREQ(name(LegState::kWrong), "wrong");
}

}  // namespace leg_board_test
}  // namespace terrace::legs
