// One thread that runs jobs in the order they were posted: reading and hashing, which no I/O thread may wait for.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "common/base/result.h"

namespace terrace::node {

class Worker {
 public:
  Worker() = default;
  // Jobs that have not begun are dropped unrun.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Once, before any job is posted. Errors as start_thread().
  Status start();
  // Any thread, a job included. Jobs must not throw.
  void post(std::function<void()> job);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace terrace::node
