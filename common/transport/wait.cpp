#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "common/transport/connection.h"

namespace terrace::transport {

bool wait(Connection& connection, std::chrono::microseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    pollfd entry{connection.wait_fd(), connection.wait_events(), 0};
    if (entry.fd < 0) return false;
    const auto left = std::max(std::chrono::nanoseconds(deadline - Clock::now()), std::chrono::nanoseconds(0));
    const timespec spec{static_cast<time_t>(left.count() / 1'000'000'000),
                        static_cast<long>(left.count() % 1'000'000'000)};
    const int ready = ::ppoll(&entry, 1, &spec, nullptr);
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace terrace::transport
