#include "coordinator/serve/http/wakeups.h"

#include <utility>

namespace terrace::serve::http {

void Wakeups::wake(std::weak_ptr<Connection> connection) {
  std::unique_lock lock(mutex_);
  woken_.push_back(std::move(connection));
  call_if_due(lock);
}

void Wakeups::begin_batch() {
  const std::scoped_lock lock(mutex_);
  ++n_batches_;
}

void Wakeups::end_batch() {
  std::unique_lock lock(mutex_);
  --n_batches_;
  call_if_due(lock);
}

std::span<const std::weak_ptr<Connection>> Wakeups::take() {
  taken_.clear();
  const std::scoped_lock lock(mutex_);
  called_ = false;
  std::swap(taken_, woken_);
  return taken_;
}

void Wakeups::call_if_due(std::unique_lock<std::mutex>& lock) {
  const bool due = n_batches_ == 0 && !woken_.empty() && !std::exchange(called_, true);
  lock.unlock();
  if (due) call_soon_();
}

}  // namespace terrace::serve::http
