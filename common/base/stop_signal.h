// SIGTERM and SIGINT as something to wait for. Created before any thread but the pool's, which block all signals
// themselves, so that every thread has the mask.
#pragma once

#include <memory>

#include "common/base/result.h"

namespace terrace {

class StopSignal {
 public:
  // Blocks both signals in this thread and those it starts. kIo.
  static Result<std::unique_ptr<StopSignal>> create();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Ends wait(); any thread.
  void notify();
  // True: a signal came. False: notify() was called.
  bool wait();
  // From now on a signal ends the process as if nobody had asked for it: the second one is not polite.
  void restore();

 private:
  StopSignal(int signal_fd, int event_fd) : signal_fd_(signal_fd), event_fd_(event_fd) {}
  const int signal_fd_;
  const int event_fd_;
};

}  // namespace terrace
