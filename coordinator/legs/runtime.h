// What a supervisor gets from its process: time, threads and waiting. A simulation gives another one, which lets one
// thread run at a time, in an order and at times that its seed gives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/result.h"
#include "coordinator/legs/leg_board.h"

namespace terrace::legs {

// Any thread.
class Runtime {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Runtime() = default;
  virtual TimePoint now() = 0;
  // As start_thread() (common/threads/start.h).
  virtual Result<std::thread> start(const std::string& name, std::function<void()> body) = 0;
  virtual void join(std::thread& thread) = 0;
  // Wakes whoever waits for `changed`, by wait() below.
  virtual void notify(std::condition_variable& changed) = 0;
  // As std::condition_variable::wait_until(): it may return early. TimePoint::max(): without a limit.
  virtual void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint until) = 0;
  // Returns once board.changes() is another than `seen`, at the latest after `most`.
  virtual void wait_for_change(LegBoard& board, std::uint64_t seen, std::chrono::milliseconds most) = 0;
};

// The steady clock and the system's threads. Without state: any threads may share it.
Runtime& system_runtime();

}  // namespace terrace::legs
