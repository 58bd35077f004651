#include "common/threads/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace terrace {
namespace {

class PoolTest : public ::testing::TestWithParam<std::tuple<std::size_t, Waiting>> {
 protected:
  PoolTest()
      : pool_(Pool::create({.n_workers = std::get<0>(GetParam()), .waiting = std::get<1>(GetParam())}).value()) {}
  std::unique_ptr<Pool> pool_;
};

TEST_P(PoolTest, EveryItemRunsOnce) {
  for (const std::size_t n_items : {1u, 2u, 3u, 7u, 64u, 1000u}) {
    std::vector<int> runs(n_items, 0);  // not atomic: the sanitizer sees an item that two workers take
    pool_->run(n_items, [&](std::size_t item, std::size_t) { ++runs[item]; });
    EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), static_cast<std::ptrdiff_t>(n_items));
  }
}

// Each item waits for the one before it, which would not end if that were still to be handed out.
TEST_P(PoolTest, RunInOrder_AnItemMayWaitForLowerOnes) {
  constexpr std::size_t kItems = 300;
  constexpr int kMostYields = 1'000'000;
  std::vector<std::atomic<int>> ended(kItems);
  std::atomic<int> in_vain = 0;
  pool_->run_in_order(kItems, [&](std::size_t item, std::size_t) {
    int yields = 0;
    while (item > 0 && ended[item - 1] == 0 && ++yields < kMostYields) std::this_thread::yield();
    if (yields == kMostYields) ++in_vain;
    ended[item] = 1;
  });
  EXPECT_EQ(in_vain, 0);
}

TEST_P(PoolTest, NoItems_NothingIsCalled) {
  pool_->run(0, [](std::size_t, std::size_t) { FAIL(); });
}

TEST_P(PoolTest, WorkerNumbersNeverOverlap) {
  std::vector<std::atomic<int>> inside(pool_->n_workers());
  std::atomic<int> overlaps = 0;
  for (int round = 0; round < 20; ++round) {
    pool_->run(50, [&](std::size_t, std::size_t worker) {
      if (worker >= inside.size() || inside[worker].fetch_add(1) != 0) ++overlaps;
      std::this_thread::yield();
      inside[worker].fetch_sub(1);
    });
  }
  EXPECT_EQ(overlaps, 0);
}

TEST_P(PoolTest, ThousandsOfTinyRuns_AreComplete) {
  std::vector<std::size_t> per_worker(pool_->n_workers(), 0);
  std::size_t expected = 0;
  for (std::size_t round = 0; round < 5000; ++round) {
    const std::size_t n_items = round % 5;
    expected += n_items;
    pool_->run(n_items, [&](std::size_t, std::size_t worker) { ++per_worker[worker]; });
  }
  EXPECT_EQ(std::accumulate(per_worker.begin(), per_worker.end(), std::size_t{0}), expected);
}

TEST_P(PoolTest, WritesOfItemsAreSeenAfterTheRun_AndOfTheCallerInIt) {
  std::vector<std::size_t> values(256, 0);
  for (std::size_t round = 1; round <= 200; ++round) {
    pool_->run(values.size(), [&](std::size_t item, std::size_t) { values[item] += item; });
    for (std::size_t& v : values) v += 1;
  }
  for (std::size_t item = 0; item < values.size(); ++item) ASSERT_EQ(values[item], 200 * item + 200);
}

TEST_P(PoolTest, LongItems_AreSharedByAllWorkers) {
  // Each item waits until every worker has one, which ends only when all of them take part.
  std::atomic<std::size_t> here = 0;
  const std::size_t n = pool_->n_workers();
  pool_->run(n, [&](std::size_t, std::size_t) {
    ++here;
    while (here < n) std::this_thread::yield();
  });
  EXPECT_EQ(here, n);
}

TEST_P(PoolTest, AfterThreadsFellAsleep_TheyWakeAgain) {
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> done = 0;
    pool_->run(100, [&](std::size_t, std::size_t) { ++done; });
    EXPECT_EQ(done, 100);
  }
}

TEST_P(PoolTest, MayBeUsedFromOneThreadAfterAnother) {
  std::atomic<int> done = 0;
  for (int i = 0; i < 4; ++i) std::thread([&] { pool_->run(10, [&](std::size_t, std::size_t) { ++done; }); }).join();
  EXPECT_EQ(done, 40);
}

INSTANTIATE_TEST_SUITE_P(Workers, PoolTest,
                         ::testing::Combine(::testing::Values(1, 2, 4, 9),
                                            ::testing::Values(Waiting::kBlock, Waiting::kSpinThenPark)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) == Waiting::kBlock ? "_block" : "_spin");
                         });

TEST(Pool, StartedAndEndedAtOnce_NothingHangs) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Pool::create({.n_workers = 4}).ok());
}

TEST(Pool, ImpossibleNumbersAreRefused) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{4097}, ~std::size_t{0}}) {
    const auto pool = Pool::create({.n_workers = n});
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.error().code(), ErrorCode::kInvalidArgument);
  }
}

// Each worker notes where it may run. Items wait for each other, so that every worker has one.
std::vector<CpuSet> masks_of(Pool& pool) {
  std::vector<CpuSet> masks(pool.n_workers());
  std::atomic<std::size_t> here = 0;
  pool.run(pool.n_workers(), [&](std::size_t, std::size_t worker) {
    masks[worker] = affinity_of_this_thread();
    ++here;
    while (here < pool.n_workers()) std::this_thread::yield();
  });
  return masks;
}

TEST(Pool, ThreadsArePinned_TheCallerWhenItSaysSo) {
  const CpuSet mine = affinity_of_this_thread();
  const std::vector<std::uint32_t> cpus = {mine.front(), mine.back(), mine.front()};
  const auto pool = Pool::create({.n_workers = 3, .cpus = cpus}).value();
  EXPECT_EQ(masks_of(*pool), (std::vector<CpuSet>{mine, {mine.back()}, {mine.front()}}));
  {
    const auto pinned = pool->pin_caller();
    ASSERT_TRUE(pinned.ok());
    EXPECT_EQ(masks_of(*pool), (std::vector<CpuSet>{{mine.front()}, {mine.back()}, {mine.front()}}));
  }
  EXPECT_EQ(affinity_of_this_thread(), mine);
}

TEST(Pool, WithoutCpus_ItsThreadsRunWhereItsMakerMay) {
  const CpuSet mine = affinity_of_this_thread();
  const auto pool = Pool::create({.n_workers = 3}).value();
  const auto pinned = pool->pin_caller();
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(masks_of(*pool), std::vector<CpuSet>(3, mine));
}

TEST(Pool, OfAChoice_HasItsThreads) {
  CpuChoice choice;
  choice.n_threads = 2;
  choice.pinned = {affinity_of_this_thread().front(), affinity_of_this_thread().front()};
  EXPECT_EQ(Pool::create(choice).value()->n_workers(), 2u);
}

TEST(Pool, CpuThatIsNotThere_IsAnError) {
  const auto pool = Pool::create({.n_workers = 2, .cpus = {0, 60000}});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code(), ErrorCode::kIo);
  EXPECT_EQ(pool.error().text(), "a thread cannot be kept on CPU 60000: Invalid argument");
}

}  // namespace
}  // namespace terrace
