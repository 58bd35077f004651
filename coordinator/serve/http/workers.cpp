#include "coordinator/serve/http/workers.h"

#include <utility>

#include "common/threads/start.h"

namespace terrace::serve::http {

Status Workers::start(std::uint32_t threads) {
  for (std::uint32_t i = 0; i < threads; ++i) {
    TERRACE_ASSIGN_OR_RETURN(std::thread started, start_thread("terrace-answer", [this] { work(); }));
    threads_.push_back(std::move(started));
  }
  return {};
}

Workers::~Workers() { stop(); }

void Workers::run(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void Workers::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace terrace::serve::http
