#include "common/arena/page_pool.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "common/base/check.h"

namespace terrace::arena {
namespace {

// Linux 5.14; older kernels answer EINVAL and pages are touched by hand.
constexpr int kPopulateWrite = 23;

Error no_memory(std::uint64_t bytes, int error_number) {
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("the system refused {} bytes: {}", bytes, std::generic_category().message(error_number)));
}

// 0, or the errno of the refusal.
int touch(std::byte* memory, std::uint64_t bytes) {
  if (madvise(memory, bytes, kPopulateWrite) == 0) return 0;
  if (errno != EINVAL) return errno;
  for (std::uint64_t at = 0; at < bytes; at += kPageBytes) static_cast<volatile std::byte*>(memory)[at] = std::byte{0};
  return 0;
}

}  // namespace

Result<std::span<std::byte>> map_touched(std::uint64_t bytes) {
  return map_touched(bytes, [] { return true; });
}

Result<std::span<std::byte>> map_touched(std::uint64_t bytes, FunctionRef<bool()> go_on) {
  TERRACE_CHECK(bytes > 0 && bytes % kPageBytes == 0, "whole pages");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return no_memory(bytes, errno);
  // Large pages spare the TLB; a refusal changes nothing else.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  const std::span<std::byte> mapped(static_cast<std::byte*>(memory), bytes);
  for (std::uint64_t at = 0; at < bytes; at += kTouchStep) {
    if (!go_on()) {
      unmap(mapped);
      return Error(ErrorCode::kPeerGone, "given up while memory was touched: nobody waits for it");
    }
    if (const int refused = touch(mapped.data() + at, std::min(kTouchStep, bytes - at))) {
      unmap(mapped);
      return no_memory(bytes, refused);
    }
  }
  return mapped;
}

void unmap(std::span<std::byte> memory) {
  const int failed = munmap(memory.data(), memory.size());
  TERRACE_CHECK(failed == 0, "munmap of our own pages");
}

bool lock(std::span<std::byte> memory) { return mlock(memory.data(), memory.size()) == 0; }

std::uint64_t raise_lock_limit() {
  rlimit now{};
  if (getrlimit(RLIMIT_MEMLOCK, &now) != 0) return 0;
  for (const rlim_t wanted : {RLIM_INFINITY, now.rlim_max}) {
    const rlimit raised{wanted, std::max(wanted, now.rlim_max)};
    if (setrlimit(RLIMIT_MEMLOCK, &raised) == 0) return wanted == RLIM_INFINITY ? kNoLockLimit : wanted;
  }
  return now.rlim_cur;
}

std::uint64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmLck:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;  // "VmLck:  12 kB"
  return 0;
}

PagePool::~PagePool() {
  TERRACE_CHECK(free_bytes_ == total_bytes_, "blocks outlive their pool");
  for (const auto& [memory, bytes] : free_) unmap({memory, bytes});
}

void PagePool::add(std::span<std::byte> memory) {
  total_bytes_ += memory.size();
  give(memory);
}

std::vector<std::span<std::byte>> PagePool::remove(std::uint64_t bytes) {
  TERRACE_CHECK(bytes % kPageBytes == 0 && bytes <= free_bytes_, "more pages than are free");
  std::vector<std::span<std::byte>> removed;
  free_bytes_ -= bytes;
  total_bytes_ -= bytes;
  while (bytes > 0) {
    // From the back, so that extents at the front stay long.
    const auto last = std::prev(free_.end());
    const std::uint64_t part = std::min(bytes, last->second);
    last->second -= part;
    removed.emplace_back(last->first + last->second, part);
    bytes -= part;
    if (last->second == 0) free_.erase(last);
  }
  return removed;
}

std::optional<std::span<std::byte>> PagePool::take(std::uint64_t bytes) {
  TERRACE_CHECK(bytes > 0 && bytes % kPageBytes == 0 && bytes <= free_bytes_, "more pages than are free");
  auto best = free_.end();
  for (auto extent = free_.begin(); extent != free_.end(); ++extent)
    if (extent->second >= bytes && (best == free_.end() || extent->second < best->second)) best = extent;
  if (best == free_.end()) return std::nullopt;
  // From the back: the extent keeps its key.
  best->second -= bytes;
  std::byte* const block = best->first + best->second;
  if (best->second == 0) free_.erase(best);
  free_bytes_ -= bytes;
  return std::span<std::byte>(block, bytes);
}

void PagePool::give(std::span<std::byte> block) {
  free_bytes_ += block.size();
  auto [at, fresh] = free_.emplace(block.data(), block.size());
  TERRACE_CHECK(fresh, "a block came back twice");
  if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  const auto previous = std::prev(at);
  if (previous->first + previous->second != at->first) return;
  previous->second += at->second;
  free_.erase(at);
}

}  // namespace terrace::arena
