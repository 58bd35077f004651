#include "common/transport/receive_pool.h"

#include <gtest/gtest.h>

#include <cstring>

namespace terrace::transport {
namespace {

TEST(ReceivePool, WindowCountsFramesGivenOut) {
  ReceivePool pool(10000);
  EXPECT_TRUE(pool.has_room(10000));
  EXPECT_FALSE(pool.has_room(10001));
  EXPECT_FALSE(pool.has_room(~std::uint64_t{0}));
  const auto a = pool.acquire(6000);
  EXPECT_TRUE(pool.has_room(4000));
  EXPECT_FALSE(pool.has_room(4001));
  pool.release(a);
  EXPECT_TRUE(pool.has_room(10000));
}

TEST(ReceivePool, BuffersAreAlignedDistinctAndUsedAgain) {
  ReceivePool pool(1 << 20);
  const auto a = pool.acquire(100);
  const auto b = pool.acquire(200);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % ReceivePool::kBufferAlignment, 0u);
  EXPECT_NE(a.data(), b.data());
  std::memset(a.data(), 1, a.size());
  std::memset(b.data(), 2, b.size());
  pool.release(a);
  const auto c = pool.acquire(4096);
  EXPECT_EQ(c.data(), a.data());
  pool.release(b);
  pool.release(c);
}

TEST(ReceivePool, ChangingLengths_KeepAtMostTwiceTheWindow) {
  constexpr std::uint64_t kWindow = 1 << 20;
  ReceivePool pool(kWindow);
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t bytes = 64; bytes <= kWindow; bytes *= 2) {
      const auto frame = pool.acquire(bytes);
      std::memset(frame.data(), 3, frame.size());
      pool.release(frame);
      ASSERT_LE(pool.kept_bytes(), 2 * kWindow);
    }
  }
  EXPECT_GE(pool.kept_bytes(), kWindow) << "buffers are kept for the next frames";
}

TEST(ReceivePoolDeathTest, ReleaseOfForeignMemory_IsABug) {
  ReceivePool pool(10000);
  const auto frame = pool.acquire(100);
  EXPECT_DEATH(pool.release(frame.first(99)), "not received here");
  EXPECT_DEATH(pool.release(frame.subspan(1)), "not received here");
}

}  // namespace
}  // namespace terrace::transport
