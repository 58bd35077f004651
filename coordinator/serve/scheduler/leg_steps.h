// How much of each step was each leg's: the board's counters behind a step less those before it.
#pragma once

#include <span>
#include <vector>

#include "coordinator/legs/leg_board.h"
#include "coordinator/serve/scheduler/histogram.h"

namespace terrace::serve {

// Of the steps that gave the leg a batch.
struct LegStepTimes {
  Histogram wait_seconds{10e-6};     // that a step waited for the leg
  Histogram compute_seconds{10e-6};  // in the leg's kernels, for one step
};

// One owner thread, that of the steps. Allocates nothing once it has seen every leg.
class LegSteps {
 public:
  // board: borrowed; null: there is nothing to tell.
  explicit LegSteps(const legs::LegBoard* board) : board_(board) { step_ended(); }

  // The first call only notes where counters stand.
  void step_ended();
  // [legs], in the board's order.
  std::span<const LegStepTimes> times() const { return times_; }

 private:
  const legs::LegBoard* board_;
  std::vector<legs::LegReport> now_, before_;  // kept for their memory
  std::vector<LegStepTimes> times_;
};

}  // namespace terrace::serve
