#include "coordinator/legs/standstill_guard.h"

#include <utility>

#include "common/threads/start.h"

namespace terrace::legs {

Result<std::unique_ptr<StandstillGuard>> StandstillGuard::start(std::chrono::milliseconds limit,
                                                                std::function<void()> end) {
  std::unique_ptr<StandstillGuard> guard(new StandstillGuard(limit, std::move(end)));
  TERRACE_ASSIGN_OR_RETURN(guard->thread_, start_thread("terrace-guard", [g = guard.get()] { g->watch(); }));
  return guard;
}

StandstillGuard::~StandstillGuard() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StandstillGuard::pause() {
  const std::lock_guard lock(mutex_);
  paused_at_ = Clock::now();
  changed_.notify_all();
}

void StandstillGuard::listen(bool moved) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  stands_since_ = moved ? now : stands_since_ + (now - *paused_at_);
  paused_at_.reset();
  changed_.notify_all();
}

void StandstillGuard::watch() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    if (paused_at_) {
      changed_.wait(lock);
    } else if (Clock::now() < stands_since_ + limit_) {
      changed_.wait_until(lock, stands_since_ + limit_);
    } else {
      fired_ = true;
      return end_();
    }
  }
}

}  // namespace terrace::legs
