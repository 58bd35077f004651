// How many pairs of a prompt's batch are computed between two looks at the decode queue: so many as take kMost, by what
// the last slices took.
//
// Threads  One owner. Nothing allocates.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>

#include "kernels/executor/executor.h"

namespace terrace::node {

class SliceLimit {
 public:
  // Less than the 5 ms that a coordinator waits at the least beyond what it planned before it takes a node for late
  // (docs/architecture.md, failure): a decode batch that finds a prompt's slice before it is still in time.
  static constexpr std::chrono::nanoseconds kMost = std::chrono::milliseconds(4);
  // Nothing is known yet. At 10^10 weights a second, a slow core, 16 pairs of experts of 5 million weights take 8 ms.
  static constexpr std::size_t kFirstPairs = 16;
  // However slow: a tile of the kernels unpacks a weight once for eight rows, so that for fewer it is most of the work.
  static constexpr std::size_t kLeastPairs = 8;

  std::size_t pairs() const { return pairs_; }
  // The faster of the last two counts: one alone may have been held up by another program. A batch's last few pairs say
  // nothing of what more of them would take.
  void took(std::size_t pairs, std::chrono::nanoseconds time) {
    if (pairs < pairs_ && time < kMost) return;
    const double cost = static_cast<double>(std::max<std::chrono::nanoseconds::rep>(time.count(), 1)) /
                        static_cast<double>(std::max<std::size_t>(pairs, 1));
    const double fit = static_cast<double>(kMost.count()) / std::min(cost, last_cost_);
    last_cost_ = cost;
    const double most = std::min(1.5 * static_cast<double>(pairs_), double{kernels::Executor::kMaxPairsPerSlice});
    pairs_ = std::max(kLeastPairs, static_cast<std::size_t>(std::min(fit, most)));
  }

 private:
  std::size_t pairs_ = kFirstPairs;
  double last_cost_ = std::numeric_limits<double>::infinity();  // nanoseconds a pair
};

}  // namespace terrace::node
