// Memory that is committed before it is promised: pages mapped and touched, cut into blocks of any size.
//
// Blocks are handed out from free extents, best fit. When the free pages suffice but no extent is long enough, the
// owner gives as many free pages as needed back to the system and maps a fresh run of them: the order in which blocks
// come and go never makes a promise fail for fragmentation.
//
// Threads  One at a time; SlabStore holds its lock around every call. map_touched() and unmap() are free of state, and
//          called without it: they take long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"

namespace terrace::arena {

inline constexpr std::uint64_t kPageBytes = 4096;
// kPageBytes' next multiple; 2^64 - 1 rounds to 2^64 - kPageBytes, which no budget allows.
constexpr std::uint64_t round_to_pages(std::uint64_t bytes) {
  const std::uint64_t whole = bytes / kPageBytes * kPageBytes;
  return whole == bytes || whole > ~std::uint64_t{0} - kPageBytes ? whole : whole + kPageBytes;
}

// `bytes` (a multiple of kPageBytes, not 0) of zeroed memory with every page present. kOutOfMemory: the system gave
// fewer; nothing is kept. `go_on` is asked between steps of kTouchStep; false: kPeerGone, nothing is kept.
inline constexpr std::uint64_t kTouchStep = std::uint64_t{256} << 20;
Result<std::span<std::byte>> map_touched(std::uint64_t bytes, FunctionRef<bool()> go_on);
Result<std::span<std::byte>> map_touched(std::uint64_t bytes);
void unmap(std::span<std::byte> memory);
// Keeps what map_touched() gave in RAM, never swapped out, until it is unmapped. False: the system does not allow so
// much (RLIMIT_MEMLOCK, without CAP_IPC_LOCK); the memory is as it was.
bool lock(std::span<std::byte> memory);
// Lets this process lock as much as it may without asking anybody: without bound where it has root's rights, else up to
// the hard limit of RLIMIT_MEMLOCK. Before rights are given up; the limit stays. Returns it; kNoLockLimit: none.
inline constexpr std::uint64_t kNoLockLimit = ~std::uint64_t{0};
std::uint64_t raise_lock_limit();
// What this process has locked, as the kernel counts it.
std::uint64_t locked_bytes();

class PagePool {
 public:
  PagePool() = default;
  ~PagePool();  // every block must have come back
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Adds memory from map_touched().
  void add(std::span<std::byte> memory);
  // Takes `bytes` (a multiple of kPageBytes, at most free_bytes()) out of the pool, for the caller to unmap().
  std::vector<std::span<std::byte>> remove(std::uint64_t bytes);

  // A block of `bytes` (a multiple of kPageBytes, at most free_bytes()), page aligned; what it holds is undefined.
  // Nothing: the free pages lie scattered. remove() and unmap() as many, map_touched() a block, and count_taken() it.
  std::optional<std::span<std::byte>> take(std::uint64_t bytes);
  // A block that the caller mapped is out like those of take(), and comes back by give() as they do.
  void count_taken(std::uint64_t bytes) { total_bytes_ += bytes; }
  void give(std::span<std::byte> block);

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  std::map<std::byte*, std::uint64_t> free_;  // extents by address, neighbours joined
  std::uint64_t free_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace terrace::arena
