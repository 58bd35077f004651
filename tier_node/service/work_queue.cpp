#include "tier_node/service/work_queue.h"

#include <algorithm>

namespace terrace::node {

void WorkQueue::push(Work& work, Wake wake) {
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
  if (wake == Wake::kNow) filled_.notify_one();
}

void WorkQueue::wake() {
  {
    const std::lock_guard lock(mutex_);
    if (!any()) return;
  }
  filled_.notify_one();
}

Work* WorkQueue::claim(std::uint32_t max_pairs) {
  const std::lock_guard lock(mutex_);
  Lines& decode = lines_[static_cast<std::size_t>(wire::Priority::kDecode)];
  if (popped_ || stopped_ || decode.empty() || decode.front().first->batch.info.n_pairs > max_pairs) return nullptr;
  claimed_ = true;
  return pop_front(decode);
}

void WorkQueue::unclaim() {
  const std::lock_guard lock(mutex_);
  claimed_ = false;
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
  popped_ = false;
  filled_.wait(lock, [this] { return stopped_ || (any() && !claimed_); });
  if (stopped_) return nullptr;
  popped_ = true;
  Work* const decode = pop_front(lines_[static_cast<std::size_t>(wire::Priority::kDecode)]);
  return decode != nullptr ? decode : pop_front(lines_[static_cast<std::size_t>(wire::Priority::kPrompt)]);
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
