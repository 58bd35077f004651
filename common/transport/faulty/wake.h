// One descriptor that is readable when another one has an event or a time has come. Only for common/transport/faulty.
#pragma once

#include <chrono>
#include <optional>

#include "common/base/result.h"

namespace terrace::transport {

class Wake {
 public:
  // kIo: the process has no descriptor left.
  static Result<Wake> create();
  Wake(Wake&& other) noexcept;
  Wake& operator=(Wake&&) = delete;
  ~Wake();

  // Readable from now on when `fd` (-1: none) has one of `events` (as for ::poll), or once `after` is over (at once
  // when it is not positive; never without one). Replaces what was asked for before.
  void arm(int fd, short events, std::optional<std::chrono::nanoseconds> after);
  int fd() const { return epoll_; }

 private:
  Wake(int epoll, int timer) : epoll_(epoll), timer_(timer) {}
  void watch(int fd, short events);

  int epoll_;
  int timer_;
  int watched_ = -1;
};

}  // namespace terrace::transport
