// What Asio has no names for. Only for common/transport/tcp. An errno, 0 where it was done.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/transport/connection.h"

namespace terrace::transport {

// SO_MAX_PACING_RATE and TCP_NOTSENT_LOWAT; 0: neither. The system paces by itself where no queue discipline does.
int set_pace(int socket, std::uint64_t bytes_per_second);
// TCP_INFO: tcpi_bytes_acked, tcpi_busy_time.
std::optional<SentProgress> sent_progress(int socket);
// SO_BUSY_POLL. Sockets that are accepted have their listener's.
int set_busy_poll(int socket, std::chrono::microseconds time);

}  // namespace terrace::transport
