#include "coordinator/legs/retry_schedule.h"

#include <algorithm>

namespace terrace::legs {

void RetrySchedule::pause(std::size_t index, TimePoint now) {
  Node& node = nodes_[index];
  node.pause = node.pause.count() == 0 ? pauses_.first : std::min(node.pause * 2, pauses_.longest);
  node.waits = true;
  node.failed_at = now;
}

void RetrySchedule::lost(std::size_t index, TimePoint now) {
  Node& node = nodes_[index];
  if (now - node.back_at >= pauses_.steady) node.pause = std::chrono::milliseconds(0);
  pause(index, now);
}

void RetrySchedule::back(std::size_t index, TimePoint now) {
  nodes_[index].waits = false;
  nodes_[index].back_at = now;
}

std::optional<std::size_t> RetrySchedule::due(TimePoint now) const {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.waits || now < node.failed_at + node.pause) continue;
    if (!first || node.failed_at < nodes_[*first].failed_at) first = i;
  }
  return first;
}

std::optional<RetrySchedule::TimePoint> RetrySchedule::next() const {
  std::optional<TimePoint> next;
  for (const Node& node : nodes_)
    if (node.waits && (!next || node.failed_at + node.pause < *next)) next = node.failed_at + node.pause;
  return next;
}

}  // namespace terrace::legs
