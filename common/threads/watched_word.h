// A counter that threads wait for: first by looking, as long as their policy says, then asleep in the kernel.
//
// std::atomic::wait() would look and yield the core a few times on its own before it sleeps (libstdc++), whatever the
// policy; this one enters the kernel at once, and changing a counter for which nobody sleeps costs no system call.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/threads/waiting.h"

namespace terrace {

class WatchedWord {
 public:
  std::uint32_t load() const { return value_.load(std::memory_order_acquire); }
  // Between two waits only: nobody watches it.
  void reset() { value_.store(0, std::memory_order_relaxed); }
  // Adds 1 and wakes whoever sleeps. What was written before is seen by whoever sees the new value.
  void increment();
  // Returns once the value is another than `seen`.
  void wait_while(std::uint32_t seen, Waiting waiting);

 private:
  bool look(std::uint32_t seen) const;

  std::atomic<std::uint32_t> value_ = 0;
  std::atomic<std::uint32_t> n_sleepers_ = 0;
};

}  // namespace terrace
