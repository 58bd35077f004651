#include "tests/fault/simulated_threads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace terrace::legs::test {

SimulatedThreads::SimulatedThreads(std::uint64_t seed) : random_(seed) {
  running_ = &threads_.emplace_back();
  running_->turn = true;
}

SimulatedThreads::~SimulatedThreads() {
  for (const Thread& thread : threads_)
    TERRACE_CHECK(&thread == running_ || thread.ended, "a thread outlives its world");
}

SimulatedThreads::TimePoint SimulatedThreads::now() { return now_ += std::chrono::microseconds(1); }

bool SimulatedThreads::may_run(const Thread& thread) const {
  return !thread.ended && (thread.until <= now_ || thread.notified || (thread.ready && thread.ready()));
}

SimulatedThreads::Thread& SimulatedThreads::choose() {
  std::vector<Thread*> able;
  const auto look = [&] {
    for (Thread& thread : threads_)
      if (may_run(thread)) able.push_back(&thread);
  };
  look();
  if (able.empty()) {
    TimePoint first = TimePoint::max();
    for (const Thread& thread : threads_)
      if (!thread.ended) first = std::min(first, thread.until);
    TERRACE_CHECK(first != TimePoint::max(), "every thread waits for another one");
    now_ = first;
    look();
  }
  return *able[random_() % able.size()];
}

void SimulatedThreads::pass_on(std::unique_lock<std::mutex>& lock) {
  Thread& self = *running_;
  Thread& next = choose();
  if (&next == &self) return;
  self.turn = false;
  running_ = &next;
  next.turn = true;
  next.its_turn.notify_one();
  if (!self.ended) wait_for_turn(self, lock);
}

void SimulatedThreads::wait_for_turn(Thread& thread, std::unique_lock<std::mutex>& lock) {
  thread.its_turn.wait(lock, [&] { return thread.turn; });
}

void SimulatedThreads::sleep(TimePoint until, std::function<bool()> ready) {
  {
    std::unique_lock lock(mutex_);
    running_->until = until;
    running_->ready = std::move(ready);
    pass_on(lock);
    running_->ready = {};
    running_->notified = false;
    running_->waits_for = nullptr;
  }
  if (on_turn_) on_turn_();
}

Result<std::thread> SimulatedThreads::start(const std::string&, std::function<void()> body) {
  const std::lock_guard lock(mutex_);
  Thread& made = threads_.emplace_back();
  made.until = now_;
  std::thread thread([this, &made, body = std::move(body)] {
    {
      std::unique_lock waits(mutex_);
      wait_for_turn(made, waits);
    }
    body();
    std::unique_lock ends(mutex_);
    made.ended = true;
    pass_on(ends);
  });
  made.id = thread.get_id();
  return thread;
}

// Once it has ended it does nothing any more but return.
void SimulatedThreads::join(std::thread& thread) {
  const auto it = std::ranges::find(threads_, thread.get_id(), &Thread::id);
  TERRACE_CHECK(it != threads_.end(), "a thread of somebody else's");
  Thread& joined = *it;
  if (!joined.ended) sleep(TimePoint::max(), [&joined] { return joined.ended; });
  thread.join();
  joined.id = {};  // the system may give it to another one
}

void SimulatedThreads::notify(std::condition_variable& changed) {
  const std::lock_guard lock(mutex_);
  for (Thread& thread : threads_)
    if (thread.waits_for == &changed) thread.notified = true;
}

void SimulatedThreads::wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint until) {
  running_->waits_for = &changed;
  lock.unlock();
  sleep(until);
  lock.lock();
}

void SimulatedThreads::wait_for_change(LegBoard& board, std::uint64_t seen, std::chrono::milliseconds most) {
  sleep(now_ + most, [&board, seen] { return board.changes() != seen; });
}

}  // namespace terrace::legs::test
