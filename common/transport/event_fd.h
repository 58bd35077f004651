// A descriptor to wait for that one thread makes readable for another. Shared by the transports without a socket.
#pragma once

#include "common/base/result.h"

namespace terrace::transport {

// An eventfd that is readable from the first signal() to the next clear(). The caller serialises the two.
class EventFd {
 public:
  // kIo: the process has no descriptor left.
  static Result<EventFd> create();
  EventFd(EventFd&& other) noexcept;
  EventFd& operator=(EventFd&&) = delete;
  ~EventFd();

  int fd() const { return fd_; }
  void signal();
  void clear();

 private:
  explicit EventFd(int fd) : fd_(fd) {}
  int fd_;
  bool signalled_ = false;
};

}  // namespace terrace::transport
