#include "tier_node/session/worker.h"

#include <utility>

#include "common/threads/start.h"

namespace terrace::node {

Status Worker::start() {
  TERRACE_ASSIGN_OR_RETURN(thread_, start_thread("terrace-files", [this] { loop(); }));
  return {};
}

Worker::~Worker() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
  }
  posted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  posted_.notify_one();
}

void Worker::loop() {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace terrace::node
