#include "coordinator/terminal/interrupts.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "common/threads/start.h"

namespace terrace::terminal {
namespace {

sigset_t interrupt_only() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

void set_interrupt(int how) {
  const sigset_t set = interrupt_only();
  pthread_sigmask(how, &set, nullptr);
}

void notify(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);
}

void drain(int fd) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(fd, &count, sizeof count);
}

}  // namespace

Result<std::unique_ptr<Interrupts>> Interrupts::create() {
  set_interrupt(SIG_BLOCK);
  const sigset_t set = interrupt_only();
  const int signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  const int came_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd < 0 || came_fd < 0 || end_fd < 0) {
    const Error error(ErrorCode::kIo, fmt::format("signalfd: {}", std::generic_category().message(errno)));
    for (const int fd : {signal_fd, came_fd, end_fd})
      if (fd >= 0) ::close(fd);
    set_interrupt(SIG_UNBLOCK);
    return error;
  }
  std::unique_ptr<Interrupts> interrupts(new Interrupts(signal_fd, came_fd, end_fd));
  TERRACE_ASSIGN_OR_RETURN(interrupts->thread_,
                           start_thread("terrace-signals", [i = interrupts.get()] { i->watch(); }));
  return interrupts;
}

Interrupts::Interrupts(int signal_fd, int came_fd, int end_fd)
    : signal_fd_(signal_fd), came_fd_(came_fd), end_fd_(end_fd) {}

Interrupts::~Interrupts() {
  notify(end_fd_);
  if (thread_.joinable()) thread_.join();
  for (const int fd : {signal_fd_, came_fd_, end_fd_}) ::close(fd);
  set_interrupt(SIG_UNBLOCK);
}

void Interrupts::clear() {
  came_.store(false, std::memory_order_relaxed);
  drain(came_fd_);
}

void Interrupts::watch() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}};
  for (;;) {
    if (::poll(fds, 2, -1) <= 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo taken;
    if (::read(signal_fd_, &taken, sizeof taken) != sizeof taken) continue;
    if (!remember_.load()) {
      signal(SIGINT, SIG_DFL);
      set_interrupt(SIG_UNBLOCK);
      raise(SIGINT);  // ends the process
    }
    came_.store(true, std::memory_order_relaxed);
    notify(came_fd_);
  }
}

}  // namespace terrace::terminal
