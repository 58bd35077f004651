#include "tier_node/service/work_queue.h"

#include <algorithm>

namespace terrace::node {

void WorkQueue::push(Work& work) {
  work.next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Lines& lines = lines_[static_cast<std::size_t>(work.batch.info.priority)];
    const auto line = std::find_if(lines.begin(), lines.end(),
                                   [&](const Line& candidate) { return candidate.session == work.session->id(); });
    if (line == lines.end()) {
      lines.push_back({work.session->id(), &work, &work});
    } else {
      line->last->next = &work;
      line->last = &work;
    }
  }
  filled_.notify_one();
}

Work* WorkQueue::pop_front(Lines& lines) {
  if (lines.empty()) return nullptr;
  Line line = lines.front();
  lines.erase(lines.begin());
  Work* const work = line.first;
  line.first = work->next;
  if (line.first != nullptr) lines.push_back(line);
  return work;
}

Work* WorkQueue::pop() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopped_) return nullptr;
    for (Lines& lines : lines_)
      if (Work* work = pop_front(lines)) return work;
    filled_.wait(lock);
  }
}

Work* WorkQueue::try_pop_decode() {
  const std::lock_guard lock(mutex_);
  return pop_front(lines_[static_cast<std::size_t>(wire::Priority::kDecode)]);
}

Work* WorkQueue::remove(std::uint64_t peer, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  for (Lines& lines : lines_) {
    for (auto line = lines.begin(); line != lines.end(); ++line) {
      Work* previous = nullptr;
      for (Work* work = line->first; work != nullptr; previous = work, work = work->next) {
        if (work->peer != peer || (sequence != 0 && work->batch.sequence != sequence)) continue;
        (previous == nullptr ? line->first : previous->next) = work->next;
        if (line->last == work) line->last = previous;
        if (line->first == nullptr) lines.erase(line);
        return work;
      }
    }
  }
  return nullptr;
}

void WorkQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  filled_.notify_all();
}

}  // namespace terrace::node
