#include "common/base/stop_signal.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace terrace {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Result<std::unique_ptr<StopSignal>> StopSignal::create() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd < 0 || event_fd < 0)
    return Error(ErrorCode::kIo, fmt::format("signalfd: {}", std::generic_category().message(errno)));
  return std::unique_ptr<StopSignal>(new StopSignal(signal_fd, event_fd));
}

StopSignal::~StopSignal() {
  ::close(signal_fd_);
  ::close(event_fd_);
}

void StopSignal::notify() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd_, &one, sizeof one);
}

bool StopSignal::wait() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {event_fd_, POLLIN, 0}};
  while (::poll(fds, 2, -1) <= 0) {
  }
  if (fds[0].revents != 0) {
    signalfd_siginfo taken;
    [[maybe_unused]] const ssize_t read = ::read(signal_fd_, &taken, sizeof taken);
    return true;
  }
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(event_fd_, &count, sizeof count);
  return false;
}

void StopSignal::restore() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace terrace
