#include "common/transport/event_fd.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace terrace::transport {

Result<EventFd> EventFd::create() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return Error(ErrorCode::kIo, fmt::format("eventfd: {}", std::strerror(errno)));
  return EventFd(fd);
}

EventFd::EventFd(EventFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), signalled_(other.signalled_) {}

EventFd::~EventFd() {
  if (fd_ >= 0) ::close(fd_);
}

void EventFd::signal() {
  if (std::exchange(signalled_, true)) return;
  const std::uint64_t one = 1;
  TERRACE_CHECK(::write(fd_, &one, sizeof(one)) == sizeof(one), "an eventfd takes a signal");
}

void EventFd::clear() {
  if (!std::exchange(signalled_, false)) return;
  std::uint64_t count;
  TERRACE_CHECK(::read(fd_, &count, sizeof(count)) == sizeof(count), "an eventfd gives its signal");
}

}  // namespace terrace::transport
