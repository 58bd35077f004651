#include "common/transport/faulty/wake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace terrace::transport {

Result<Wake> Wake::create() {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return Error(ErrorCode::kIo, fmt::format("epoll_create1: {}", std::strerror(errno)));
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer < 0) {
    const Error error(ErrorCode::kIo, fmt::format("timerfd_create: {}", std::strerror(errno)));
    ::close(epoll);
    return error;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = timer;
  TERRACE_CHECK(::epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) == 0, "an epoll takes a timer");
  return Wake(epoll, timer);
}

Wake::Wake(Wake&& other) noexcept
    : epoll_(std::exchange(other.epoll_, -1)),
      timer_(std::exchange(other.timer_, -1)),
      watched_(std::exchange(other.watched_, -1)) {}

Wake::~Wake() {
  if (epoll_ >= 0) ::close(epoll_);
  if (timer_ >= 0) ::close(timer_);
}

void Wake::arm(int fd, short events, std::optional<std::chrono::nanoseconds> after) {
  watch(fd, events);
  itimerspec when{};  // zero: never
  if (after) {
    const auto ns = std::max<std::int64_t>(after->count(), 1);
    when.it_value = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  }
  TERRACE_CHECK(::timerfd_settime(timer_, 0, &when, nullptr) == 0, "a timer takes a time");
}

void Wake::watch(int fd, short events) {
  // A descriptor that was closed meanwhile has left by itself: errors tell nothing new.
  if (watched_ >= 0 && watched_ != fd) (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, watched_, nullptr);
  watched_ = fd;
  if (fd < 0) return;
  epoll_event event{};
  event.events = ((events & POLLIN) != 0 ? EPOLLIN : 0u) | ((events & POLLOUT) != 0 ? EPOLLOUT : 0u);
  event.data.fd = fd;
  if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0) return;
  TERRACE_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0, "an epoll takes a connection's descriptor");
}

}  // namespace terrace::transport
