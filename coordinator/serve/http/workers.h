// A few threads that run what would hold up the server's thread, in the order of coming.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/result.h"

namespace terrace::serve::http {

class Workers {
 public:
  // Errors as start_thread(), then it is to be stopped. Once.
  Status start(std::uint32_t threads);
  Workers() = default;
  ~Workers();  // as stop()
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Any thread. The task must not throw. After stop() it is dropped.
  void run(std::function<void()> task);
  // Drops the tasks that wait, and returns when those that run have returned.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // by mutex_
  bool stopping_ = false;                    // by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace terrace::serve::http
