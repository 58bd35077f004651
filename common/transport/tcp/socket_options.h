// What Asio has no names for. Only for common/transport/tcp. An errno, 0 where it was done.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/transport/connection.h"

namespace terrace::transport {

// Of a socket with such a pace, bytes that the system may hold unsent, and that one write hands it. What is written in
// one go the system may send in one go, 64 KB of it at the most, in front of somebody's batch: so much passes in 64 us,
// but no less than wakes its writer at a bearable rate.
constexpr std::size_t unsent_when_paced(std::uint64_t bytes_per_second) {
  return std::clamp<std::uint64_t>(bytes_per_second / 15'625, 8 << 10, 64 << 10);
}
// SO_MAX_PACING_RATE and TCP_NOTSENT_LOWAT; 0: neither. The system paces by itself where no queue discipline does.
int set_pace(int socket, std::uint64_t bytes_per_second);
// TCP_INFO: tcpi_bytes_acked, tcpi_busy_time, tcpi_rwnd_limited, tcpi_delivery_rate and its app_limited.
std::optional<SentProgress> sent_progress(int socket);
// SO_BUSY_POLL. Sockets that are accepted have their listener's.
int set_busy_poll(int socket, std::chrono::microseconds time);

}  // namespace terrace::transport
