// How many pairs of a prompt's batch are computed between two looks at the decode queue: so many as take kMost, by what
// the slice before took.
//
// Threads  One owner. Nothing allocates.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "kernels/executor/executor.h"

namespace terrace::node {

class SliceLimit {
 public:
  // Less than the 5 ms that a coordinator waits at the least beyond what it planned before it takes a node for late
  // (docs/architecture.md, failure): a decode batch that finds a prompt's slice before it is still in time.
  static constexpr std::chrono::nanoseconds kMost = std::chrono::milliseconds(4);
  // Nothing is known yet. At 10^10 weights a second, a slow core, 16 pairs of experts of 5 million weights take 8 ms.
  static constexpr std::size_t kFirstPairs = 16;
  // However slow: an expert's weights are read once a slice, and for fewer pairs that would be most of the work.
  static constexpr std::size_t kLeastPairs = 4;

  std::size_t pairs() const { return pairs_; }
  // A slice may have been held up by another program: growing by half each time forgets that soon. A batch's last few
  // pairs say nothing of what more of them would take.
  void took(std::size_t pairs, std::chrono::nanoseconds time) {
    if (pairs < pairs_ && time < kMost) return;
    const double fit = static_cast<double>(pairs) * static_cast<double>(kMost.count()) /
                       static_cast<double>(std::max<std::chrono::nanoseconds::rep>(time.count(), 1));
    const double most = std::min(1.5 * static_cast<double>(pairs_), double{kernels::Executor::kMaxPairsPerSlice});
    pairs_ = std::max(kLeastPairs, static_cast<std::size_t>(std::min(fit, most)));
  }

 private:
  std::size_t pairs_ = kFirstPairs;
};

}  // namespace terrace::node
