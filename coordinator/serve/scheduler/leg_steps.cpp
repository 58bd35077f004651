#include "coordinator/serve/scheduler/leg_steps.h"

#include <utility>

namespace terrace::serve {

void LegSteps::step_ended() {
  if (board_ == nullptr) return;
  board_->report(now_);
  times_.resize(now_.size());  // legs are only added
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const legs::LegCounters& from = before_[i].counters;
    const legs::LegCounters& to = now_[i].counters;
    if (to.batches == from.batches) continue;
    times_[i].wait_seconds.add(1e-6 * static_cast<double>(to.wait_us - from.wait_us));
    times_[i].compute_seconds.add(1e-6 * static_cast<double>(to.compute_us - from.compute_us));
  }
  std::swap(now_, before_);
}

}  // namespace terrace::serve
