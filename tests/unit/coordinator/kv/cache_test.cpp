#include "coordinator/kv/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace terrace::kv {
namespace {

using kernels::kKvBlockPositions;
using kernels::KvType;

constexpr CacheShape kShape = {.n_layers = 3, .n_kv_heads = 2, .key_dim = 16, .value_dim = 8, .type = KvType::kF16};
constexpr std::uint32_t kContext = 3 * kKvBlockPositions + 5;

TEST(KvCache, NewStream_IsEmptyAndTakesNoBlock) {
  Cache cache(kShape, kContext, 2);
  const auto stream = cache.open();
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(cache.length(*stream), 0u);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(KvCache, AllStreamsOpen_IsBusyUntilOneCloses) {
  Cache cache(kShape, kContext, 2);
  ASSERT_TRUE(cache.open().ok());
  const auto second = cache.open();
  ASSERT_TRUE(second.ok());
  const auto third = cache.open();
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code(), ErrorCode::kBusy);
  cache.close(*second);
  EXPECT_FALSE(cache.is_open(*second));
  EXPECT_EQ(*cache.open(), *second);
}

TEST(KvCache, BlocksAreTakenAsPositionsNeedThemAndFreedOnClose) {
  Cache cache(kShape, kContext, 1);
  const auto stream = *cache.open();
  for (std::uint32_t n = 1; n <= kContext; ++n) {
    ASSERT_TRUE(cache.reserve(stream, n).ok());
    cache.commit(stream, n);
    EXPECT_EQ(cache.bytes_in_use(), Cache::blocks_for(n) * kShape.block_bytes());
  }
  cache.close(stream);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(KvCache, ReserveBeyondTheContext_SaysPositionAndContext) {
  Cache cache(kShape, kContext, 1);
  const auto stream = *cache.open();
  const Status status = cache.reserve(stream, kContext + 1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kContextFull);
  EXPECT_NE(status.error().text().find(std::to_string(kContext)), std::string::npos) << status.error().text();
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(KvCache, SetAside_IsUsedByWhoGrowsAndIsInNobodysUseBefore) {
  Cache cache(kShape, 10 * kKvBlockPositions, 2);
  const std::uint32_t stream = cache.open().value();
  cache.set_aside(stream, 3 * kKvBlockPositions);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
  ASSERT_TRUE(cache.reserve(stream, 4 * kKvBlockPositions).ok());
  EXPECT_EQ(cache.bytes_in_use(), 4 * kShape.block_bytes());
  cache.set_aside(stream, UINT32_MAX);  // the context's end
  ASSERT_TRUE(cache.reserve(stream, 10 * kKvBlockPositions).ok());
}

TEST(KvCache, SetAside_TakesNoMoreThanTheLimitLeaves) {
  Cache cache(kShape, 10 * kKvBlockPositions, 2, 3);
  const std::uint32_t one = cache.open().value(), two = cache.open().value();
  ASSERT_TRUE(cache.reserve(one, 2 * kKvBlockPositions).ok());
  cache.set_aside(two, 10 * kKvBlockPositions);
  ASSERT_TRUE(cache.reserve(two, 1).ok());
  EXPECT_EQ(cache.reserve(two, kKvBlockPositions + 1).error().code(), ErrorCode::kOutOfMemory);
  cache.close(one);
  EXPECT_TRUE(cache.reserve(two, 3 * kKvBlockPositions).ok());
}

TEST(KvCache, RollBack_KeepsCommittedPositionsAndFreesTheRest) {
  Cache cache(kShape, kContext, 1);
  const auto stream = *cache.open();
  ASSERT_TRUE(cache.reserve(stream, 10).ok());
  cache.commit(stream, 10);
  std::byte* const k = cache.block(stream, 3, 1, 1).k;
  std::memset(k, 0x5a, 64);
  ASSERT_TRUE(cache.reserve(stream, kContext).ok());
  cache.roll_back(stream);
  EXPECT_EQ(cache.length(stream), 10u);
  EXPECT_EQ(cache.bytes_in_use(), kShape.block_bytes());
  EXPECT_EQ(cache.block(stream, 3, 1, 1).k, k);
  EXPECT_EQ(k[63], std::byte{0x5a});
}

// Every head of every layer of every block of two streams: aligned, disjoint, and all of a block's bytes used.
TEST(KvCache, HeadsAreAlignedAndDisjoint) {
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    CacheShape shape = kShape;
    shape.type = type;
    Cache cache(shape, kContext, 2);
    const std::size_t key_bytes = kKvBlockPositions * shape.key_dim * kernels::bytes(type);
    const std::size_t value_bytes = kKvBlockPositions * shape.value_dim * kernels::bytes(type);
    std::set<std::pair<const std::byte*, const std::byte*>> extents;
    for (int s = 0; s < 2; ++s) {
      const auto stream = *cache.open();
      ASSERT_TRUE(cache.reserve(stream, kContext).ok());
      for (std::uint32_t position = 0; position < kContext; position += kKvBlockPositions)
        for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer)
          for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
            const HeadBlock at = cache.block(stream, position, layer, head);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at.k) % 64, 0u);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at.v) % 64, 0u);
            extents.emplace(at.k, at.k + key_bytes);
            extents.emplace(at.v, at.v + value_bytes);
          }
    }
    EXPECT_EQ(extents.size(), 2 * 4 * 2 * shape.n_layers * shape.n_kv_heads);
    EXPECT_EQ(cache.bytes_in_use(), extents.size() / 2 * (key_bytes + value_bytes));
    const std::byte* end = nullptr;
    for (const auto& [first, last] : extents) {
      EXPECT_LE(end, first);
      end = last;
    }
  }
}

TEST(KvCache, Bases_AreThoseOfTheBlocks) {
  Cache cache(kShape, kContext, 1);
  const auto stream = *cache.open();
  ASSERT_TRUE(cache.reserve(stream, kContext).ok());
  const std::size_t n_blocks = Cache::blocks_for(kContext);
  std::vector<const std::byte*> k(n_blocks), v(n_blocks);
  cache.bases(stream, 2, 1, n_blocks, k.data(), v.data());
  for (std::uint32_t i = 0; i < n_blocks; ++i) {
    const HeadBlock at = cache.block(stream, i * kKvBlockPositions, 2, 1);
    EXPECT_EQ(k[i], at.k);
    EXPECT_EQ(v[i], at.v);
  }
}

// ---- sharing --------------------------------------------------------------------------------------------------------

std::uint32_t stream_of(Cache& cache, std::uint32_t positions) {
  const std::uint32_t stream = *cache.open();
  EXPECT_TRUE(cache.reserve(stream, positions).ok());
  cache.commit(stream, positions);
  return stream;
}

TEST(KvCacheFork, SharesBlocksAndTakesNone) {
  Cache cache(kShape, kContext, 2);
  const auto from = stream_of(cache, kKvBlockPositions + 3);
  const std::uint64_t before = cache.bytes_in_use();
  const auto fork = cache.fork(from, kKvBlockPositions + 1);
  ASSERT_TRUE(fork.ok());
  EXPECT_EQ(cache.length(*fork), kKvBlockPositions + 1);
  EXPECT_EQ(cache.bytes_in_use(), before);
  for (std::uint32_t position = 0; position <= kKvBlockPositions; position += kKvBlockPositions)
    EXPECT_EQ(cache.block(*fork, position, 1, 1).k, cache.block(from, position, 1, 1).k);
}

TEST(KvCacheFork, WhoWritesToASharedBlock_GetsACopyOfItAndTheOtherKeepsIt) {
  for (const bool the_fork_writes : {true, false}) {
    Cache cache(kShape, kContext, 2);
    const auto from = stream_of(cache, kKvBlockPositions + 3);
    std::memset(cache.room(from, 1).data(), 0x5a, kShape.block_bytes());
    const auto fork = *cache.fork(from, kKvBlockPositions + 3);
    const std::byte* const shared = cache.stored(from, 1).data();
    const auto writer = the_fork_writes ? fork : from, other = the_fork_writes ? from : fork;
    ASSERT_TRUE(cache.reserve(writer, kKvBlockPositions + 4).ok());
    EXPECT_EQ(cache.stored(other, 1).data(), shared);
    EXPECT_NE(cache.stored(writer, 1).data(), shared);
    EXPECT_TRUE(std::ranges::equal(cache.stored(writer, 1), cache.stored(other, 1)));
    EXPECT_EQ(cache.stored(writer, 0).data(), cache.stored(other, 0).data());  // full: nobody writes to it
    EXPECT_EQ(cache.bytes_in_use(), 3 * kShape.block_bytes());
    // It is alone with its copy now.
    const std::byte* const own = cache.stored(writer, 1).data();
    cache.commit(writer, kKvBlockPositions + 4);
    ASSERT_TRUE(cache.reserve(writer, kKvBlockPositions + 5).ok());
    EXPECT_EQ(cache.stored(writer, 1).data(), own);
  }
}

TEST(KvCacheFork, AtABlocksEnd_NothingIsCopied) {
  Cache cache(kShape, kContext, 2);
  const auto from = stream_of(cache, 2 * kKvBlockPositions);
  const auto fork = *cache.fork(from, kKvBlockPositions);
  ASSERT_TRUE(cache.reserve(fork, kKvBlockPositions + 1).ok());
  EXPECT_EQ(cache.bytes_in_use(), 3 * kShape.block_bytes());
  EXPECT_EQ(cache.stored(fork, 0).data(), cache.stored(from, 0).data());
}

TEST(KvCacheFork, SharedBlocksLiveUntilTheLastHolderCloses) {
  Cache cache(kShape, kContext, 3);
  const auto from = stream_of(cache, kContext);
  const auto a = *cache.fork(from, kContext), b = *cache.fork(a, 5);
  cache.close(from);
  EXPECT_EQ(cache.bytes_in_use(), 4 * kShape.block_bytes());
  cache.close(a);
  EXPECT_EQ(cache.bytes_in_use(), kShape.block_bytes());
  cache.close(b);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(KvCacheFork, WithoutAFreeStream_IsBusy) {
  Cache cache(kShape, kContext, 1);
  const auto from = stream_of(cache, 3);
  EXPECT_EQ(cache.fork(from, 3).error().code(), ErrorCode::kBusy);
}

TEST(KvCacheLimit, BlocksBeyondIt_AreRefusedAndChangeNothing) {
  Cache cache(kShape, kContext, 3, 2);
  const auto from = stream_of(cache, kKvBlockPositions + 3);
  const auto fork = *cache.fork(from, kKvBlockPositions + 3);
  for (const auto stream : {from, fork}) {  // the copy of the last block is one too many
    const Status refused = cache.reserve(stream, kKvBlockPositions + 4);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_EQ(cache.length(stream), kKvBlockPositions + 3);
    EXPECT_EQ(cache.bytes_in_use(), 2 * kShape.block_bytes());
  }
  cache.close(fork);
  EXPECT_TRUE(cache.reserve(from, 2 * kKvBlockPositions).ok());
  EXPECT_EQ(cache.reserve(from, 2 * kKvBlockPositions + 1).error().code(), ErrorCode::kOutOfMemory);
}

TEST(KvCacheResting, CountsBlocksThatNoStreamHoldsWhichIsAwake) {
  Cache cache(kShape, kContext, 3);
  const std::uint64_t block = kShape.block_bytes();
  const auto a = stream_of(cache, 2 * kKvBlockPositions + 1);
  EXPECT_EQ(cache.bytes_resting(), 0u);
  cache.set_resting(a, true);
  EXPECT_EQ(cache.bytes_resting(), 3 * block);
  const auto b = *cache.fork(a, kKvBlockPositions + 1);
  EXPECT_EQ(cache.bytes_resting(), block);
  ASSERT_TRUE(cache.reserve(b, kKvBlockPositions + 2).ok());  // its copy is awake, the block is a's alone again
  EXPECT_EQ(cache.bytes_resting(), 2 * block);
  const auto c = *cache.fork(a, 3);
  cache.set_resting(b, true);
  EXPECT_EQ(cache.bytes_resting(), 3 * block);
  cache.close(c);
  EXPECT_EQ(cache.bytes_resting(), 4 * block);
  cache.set_resting(a, false);
  EXPECT_EQ(cache.bytes_resting(), block);
  cache.close(b);
  EXPECT_EQ(cache.bytes_resting(), 0u);
  EXPECT_EQ(cache.bytes_in_use(), 3 * block);
}

TEST(KvCacheShape, ClearBeyond_LeavesWhatIsStored) {
  Cache cache(kShape, kContext, 1);
  const auto stream = stream_of(cache, kKvBlockPositions);
  constexpr std::size_t kStored = 5;
  std::vector<std::byte> block(kShape.block_bytes(), std::byte{0x11});
  kShape.clear_beyond(block, kStored);
  const std::byte* const base = cache.stored(stream, 0).data();
  const std::size_t element = kernels::bytes(kShape.type);
  for (std::uint32_t layer = 0; layer < kShape.n_layers; ++layer)
    for (std::uint32_t head = 0; head < kShape.n_kv_heads; ++head) {
      const HeadBlock at = cache.block(stream, 0, layer, head);
      for (std::size_t position = 0; position < kKvBlockPositions; ++position) {
        const auto expected = std::byte{position < kStored ? std::uint8_t{0x11} : std::uint8_t{0}};
        for (std::size_t d = 0; d < kShape.key_dim; ++d)
          EXPECT_EQ(block[static_cast<std::size_t>(at.k - base) + (d * kKvBlockPositions + position) * element],
                    expected);
        for (std::size_t d = 0; d < kShape.value_dim; ++d)
          EXPECT_EQ(block[static_cast<std::size_t>(at.v - base) + (position * kShape.value_dim + d) * element],
                    expected);
      }
    }
}

// ---- steps ----------------------------------------------------------------------------------------------------------

void store(Cache& cache, std::uint32_t stream, std::uint32_t positions, std::uint64_t step) {
  ASSERT_TRUE(cache.reserve(stream, positions).ok());
  cache.set_step(step);
  cache.commit(stream, positions);
}

TEST(KvCache, ForgetSince_CutsAtTheFirstPositionOfTheStepAndFreesBlocks) {
  Cache cache(kShape, kContext, 1);
  const auto stream = *cache.open();
  store(cache, stream, 40, 3);
  store(cache, stream, 41, 4);
  store(cache, stream, 90, 6);
  EXPECT_EQ(cache.forget_since(stream, 7), 90u);
  EXPECT_EQ(cache.forget_since(stream, 5), 41u);
  EXPECT_EQ(cache.length(stream), 41u);
  EXPECT_EQ(cache.bytes_in_use(), Cache::blocks_for(41) * kShape.block_bytes());
  store(cache, stream, 50, 9);  // goes on from there
  EXPECT_EQ(cache.forget_since(stream, 5), 41u);
  EXPECT_EQ(cache.forget_since(stream, 3), 0u);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(KvCache, ForkAndItsCopy_RememberWhoseStepsTheyHold) {
  Cache cache(kShape, kContext, 3);
  const auto first = *cache.open();
  store(cache, first, 35, 2);
  store(cache, first, 40, 5);
  const auto fork = *cache.fork(first, 38);
  store(cache, fork, 44, 8);  // in a copy of the second block
  EXPECT_EQ(cache.forget_since(fork, 5), 35u);
  EXPECT_EQ(cache.length(first), 40u);
  EXPECT_EQ(cache.forget_since(first, 5), 35u);
}

TEST(KvCache, ForgetSince_LeavesReservedRoomOfACertainStream) {
  Cache cache(kShape, kContext, 1);
  const auto stream = *cache.open();
  ASSERT_TRUE(cache.reserve(stream, 33).ok());
  EXPECT_EQ(cache.forget_since(stream, 1), 0u);
  EXPECT_EQ(cache.bytes_in_use(), 2 * kShape.block_bytes());
}

}  // namespace
}  // namespace terrace::kv
