#include "common/threads/watched_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

namespace terrace {
namespace {

constexpr int kPausesPerClockRead = 32;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "the kernel reads the word itself");

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

// A sleeper counts itself before it looks for the last time, a writer writes before it counts sleepers, and all four
// are in one order: a writer that finds none is one whose value the sleeper will find.
void WatchedWord::increment() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (n_sleepers_.load(std::memory_order_seq_cst) != 0) futex(value_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void WatchedWord::wait_while(std::uint32_t seen, Waiting waiting) {
  if (waiting == Waiting::kSpinThenPark && look(seen)) return;
  n_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == seen) futex(value_, FUTEX_WAIT_PRIVATE, seen);
  n_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

// True: the value has changed.
bool WatchedWord::look(std::uint32_t seen) const {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (load() != seen) return true;
      pause_core();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace terrace
