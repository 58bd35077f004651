// Ends a streaming call that stands still: gRPC has a deadline for a call, none for the time between answers. An answer
// that tells nothing new does not count, or a node that never gets ready could keep us waiting for ever.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/result.h"

namespace terrace::legs {

// Threads  One of its own, which calls `end`; the functions are the caller's.
class StandstillGuard {
 public:
  // `end` is called once, when the call has stood still for `limit`: from any thread, and never after the guard's end.
  // Errors as start_thread().
  static Result<std::unique_ptr<StandstillGuard>> start(std::chrono::milliseconds limit, std::function<void()> end);
  ~StandstillGuard();
  StandstillGuard(const StandstillGuard&) = delete;
  StandstillGuard& operator=(const StandstillGuard&) = delete;

  // From here to listen() the time is ours (we may be sending slabs) and does not count.
  void pause();
  // Waits for the node again; `moved`: its last answer told something new.
  void listen(bool moved);
  bool fired() const { return fired_; }

 private:
  using Clock = std::chrono::steady_clock;

  StandstillGuard(std::chrono::milliseconds limit, std::function<void()> end) : limit_(limit), end_(std::move(end)) {}
  void watch();

  const std::chrono::milliseconds limit_;
  const std::function<void()> end_;
  std::mutex mutex_;  // guards the next three
  Clock::time_point stands_since_ = Clock::now();
  std::optional<Clock::time_point> paused_at_;
  bool done_ = false;
  std::condition_variable changed_;
  std::atomic<bool> fired_{false};
  std::thread thread_;
};

}  // namespace terrace::legs
