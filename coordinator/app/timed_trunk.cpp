#include "coordinator/app/timed_trunk.h"

namespace terrace::app {

std::vector<TimedStep> TimedTrunk::take() {
  std::vector<TimedStep> next;
  next.reserve(kStepsSetAside);
  const std::lock_guard lock(mutex_);
  std::swap(next, steps_);
  return next;
}

Result<arch::StepResult> TimedTrunk::step(std::span<const arch::StepRow> rows) {
  TimedStep step;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool has_neighbour = (i > 0 && rows[i - 1].stream == rows[i].stream) ||
                               (i + 1 < rows.size() && rows[i + 1].stream == rows[i].stream);
    ++(has_neighbour ? step.prompt_rows : step.decode_rows);
  }
  step.begin = std::chrono::steady_clock::now();
  auto result = trunk_.step(rows);
  step.end = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  steps_.push_back(step);
  return result;
}

}  // namespace terrace::app
