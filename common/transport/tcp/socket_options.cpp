#include "common/transport/tcp/socket_options.h"

// tcp_info as the kernel has it; <netinet/tcp.h> has another one, without what is asked for here.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

namespace terrace::transport {
namespace {

template <class Value>
int set(int socket, int level, int name, Value value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0 ? 0 : errno;
}

}  // namespace

int set_pace(int socket, std::uint64_t bytes_per_second) {
  const bool paced = bytes_per_second > 0;
  // 64 bits wide, or 34 Gbit/s were the most.
  const int error =
      set<std::uint64_t>(socket, SOL_SOCKET, SO_MAX_PACING_RATE, paced ? bytes_per_second : ~std::uint64_t{0});
  if (error != 0) return error;
  const auto unsent = paced ? static_cast<unsigned>(unsent_when_paced(bytes_per_second)) : 0;
  return set<unsigned>(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent);  // 0: the system's
}

std::optional<SentProgress> sent_progress(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
  // An older kernel writes less.
  if (bytes < offsetof(tcp_info, tcpi_rwnd_limited) + sizeof info.tcpi_rwnd_limited) return std::nullopt;
  return SentProgress{.confirmed_bytes = info.tcpi_bytes_acked,
                      .busy = std::chrono::microseconds(info.tcpi_busy_time),
                      .receiver_limited = std::chrono::microseconds(info.tcpi_rwnd_limited),
                      .delivery_rate = info.tcpi_delivery_rate,
                      .sender_limited = info.tcpi_delivery_rate_app_limited != 0};
}

int set_busy_poll(int socket, std::chrono::microseconds time) {
  return set<int>(socket, SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(time.count()));
}

}  // namespace terrace::transport
