#include "common/arena/page_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace terrace::arena {
namespace {

constexpr std::uint64_t kPages = 64;

class PagePoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto memory = map_touched(kPages * kPageBytes);
    ASSERT_TRUE(memory.ok()) << memory.error().text();
    pool_.add(*memory);
  }
  PagePool pool_;
};

TEST(RoundToPages, EdgesOfTheRange) {
  EXPECT_EQ(round_to_pages(0), 0u);
  EXPECT_EQ(round_to_pages(1), kPageBytes);
  EXPECT_EQ(round_to_pages(kPageBytes), kPageBytes);
  EXPECT_EQ(round_to_pages(~std::uint64_t{0}), ~std::uint64_t{0} - kPageBytes + 1);
}

TEST_F(PagePoolTest, BlocksDoNotOverlapAndComeBackWhole) {
  std::vector<std::span<std::byte>> blocks;
  for (int i = 0; i < 8; ++i) {
    auto block = pool_.take(8 * kPageBytes);
    ASSERT_TRUE(block);
    std::memset(block->data(), i, block->size());
    blocks.push_back(*block);
  }
  EXPECT_EQ(pool_.free_bytes(), 0u);
  for (int i = 0; i < 8; ++i)
    for (const std::byte b : blocks[i]) ASSERT_EQ(b, static_cast<std::byte>(i));
  for (const auto block : blocks) pool_.give(block);
  auto whole = pool_.take(kPages * kPageBytes);
  ASSERT_TRUE(whole) << "neighbours were not joined";
  pool_.give(*whole);
}

TEST_F(PagePoolTest, FreePagesScattered_NoBlockUntilAFreshRunIsMapped) {
  std::vector<std::span<std::byte>> blocks;
  for (std::uint64_t i = 0; i < kPages; ++i) blocks.push_back(*pool_.take(kPageBytes));
  for (std::uint64_t i = 0; i < kPages; i += 2) pool_.give(blocks[i]);
  constexpr std::uint64_t kHalf = kPages / 2 * kPageBytes;
  EXPECT_FALSE(pool_.take(kHalf)) << "no two free pages are neighbours";
  for (const auto pages : pool_.remove(kHalf)) unmap(pages);
  auto block = map_touched(kHalf);
  ASSERT_TRUE(block.ok()) << block.error().text();
  pool_.count_taken(kHalf);
  EXPECT_EQ(pool_.total_bytes(), kPages * kPageBytes);
  EXPECT_EQ(pool_.free_bytes(), 0u);
  pool_.give(*block);
  for (std::uint64_t i = 1; i < kPages; i += 2) pool_.give(blocks[i]);
}

TEST(MapTouched, GivenUpBetweenTwoSteps_NothingIsKept) {
  int asked = 0;
  const auto given_up = map_touched(2 * kTouchStep, [&] { return ++asked < 2; });
  ASSERT_FALSE(given_up.ok());
  EXPECT_EQ(given_up.error().code(), ErrorCode::kPeerGone);
  EXPECT_EQ(asked, 2);
}

// 0, or the number of the line at which it is not so. In a process of its own, which has no rights of root's.
int lock_below_a_limit() {
  constexpr std::uint64_t kLimit = 16 * kPageBytes;
  const rlimit limit{kLimit, kLimit};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return __LINE__;
  if (geteuid() == 0 && seteuid(65534) != 0) return __LINE__;
  if (raise_lock_limit() != kLimit) return __LINE__;
  const auto small = map_touched(8 * kPageBytes), large = map_touched(32 * kPageBytes);
  if (!small.ok() || !large.ok() || locked_bytes() != 0) return __LINE__;
  if (!lock(*small) || locked_bytes() != 8 * kPageBytes) return __LINE__;
  if (lock(*large) || locked_bytes() != 8 * kPageBytes) return __LINE__;
  std::memset(large->data(), 1, large->size());
  unmap(*small);
  return locked_bytes() == 0 ? 0 : __LINE__;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they lock nothing, and say that they did
TEST(MapTouched, LockedAsFarAsTheLimitAllows_TheRestIsAsItWas) {
  const pid_t child = fork();
  if (child == 0) _exit(lock_below_a_limit());
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0) << "line";
}
#endif

TEST_F(PagePoolTest, RandomTakesAndGives_KeepCount) {
  constexpr unsigned kSeed = 4711;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  std::vector<std::span<std::byte>> held;
  for (int step = 0; step < 2000; ++step) {
    const std::uint64_t bytes = (random() % 9 + 1) * kPageBytes;
    if (random() % 2 == 0 && bytes <= pool_.free_bytes()) {
      auto block = pool_.take(bytes);
      if (!block) continue;  // scattered
      ASSERT_EQ(block->size(), bytes);
      std::memset(block->data(), 7, bytes);
      held.push_back(*block);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      pool_.give(held.back());
      held.pop_back();
    }
  }
  std::uint64_t held_bytes = 0;
  for (const auto block : held) held_bytes += block.size();
  EXPECT_EQ(pool_.free_bytes() + held_bytes, kPages * kPageBytes);
  EXPECT_EQ(pool_.total_bytes(), kPages * kPageBytes);
  for (const auto block : held) pool_.give(block);
}

TEST_F(PagePoolTest, Remove_GivesExactlyThatMuchAway) {
  const auto removed = pool_.remove(5 * kPageBytes);
  std::uint64_t bytes = 0;
  for (const auto part : removed) {
    bytes += part.size();
    unmap(part);
  }
  EXPECT_EQ(bytes, 5 * kPageBytes);
  EXPECT_EQ(pool_.total_bytes(), (kPages - 5) * kPageBytes);
}

}  // namespace
}  // namespace terrace::arena
