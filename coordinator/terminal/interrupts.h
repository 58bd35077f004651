// Ctrl-C as a question instead of the end of the program: SIGINT is taken by a thread of this object and remembered.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "common/base/result.h"

namespace terrace::terminal {

// One at a time in a process, made before any other thread: threads inherit that SIGINT is blocked. At its end SIGINT
// is as it was.
class Interrupts {
 public:
  static Result<std::unique_ptr<Interrupts>> create();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Before the first call SIGINT ends the process, as it would without this object.
  void remember() { remember_.store(true); }
  // Whether one came since the last clear(). Any thread; costs one load.
  bool came() const { return came_.load(std::memory_order_relaxed); }
  void clear();
  // Readable while came(): for poll().
  int fd() const { return came_fd_; }

 private:
  Interrupts(int signal_fd, int came_fd, int end_fd);
  void watch();

  const int signal_fd_;
  const int came_fd_;
  const int end_fd_;
  std::atomic<bool> remember_ = false;
  std::atomic<bool> came_ = false;
  std::thread thread_;
};

}  // namespace terrace::terminal
