// How fast work can go, measured beside other programs: what disturbs only slows down, so the fastest moment counts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"

namespace terrace::app {

// Runs items 0 .. n_items - 1 in windows of `window` items (the last may be shorter), `passes` times over all of them;
// returns the items a second of the fastest window. A window should last a millisecond or more: long beside handing
// items out, short beside what another program may take the CPUs for.
inline double best_rate(Parallel& parallel, std::size_t n_items, std::size_t window, int passes,
                        FunctionRef<void(std::size_t item, std::size_t worker)> run_item) {
  double best = 0;
  for (int pass = 0; pass < passes; ++pass)
    for (std::size_t first = 0; first < n_items; first += window) {
      const std::size_t n = std::min(window, n_items - first);
      const auto begin = std::chrono::steady_clock::now();
      parallel.run(n, [&](std::size_t item, std::size_t worker) { run_item(first + item, worker); });
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      best = std::max(best, static_cast<double>(n) / std::max(seconds.count(), 1e-9));
    }
  return best;
}

}  // namespace terrace::app
