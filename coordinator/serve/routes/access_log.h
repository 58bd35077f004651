// One line of the log for each request.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "coordinator/serve/http/server.h"

namespace terrace::serve {

// With the request's id. info; a request that failed through no fault of its client is an error with the reason, a 503
// (the server may do it another time) a warning with it. Requests of monitors, every few seconds, are debug.
void log_served(const Logger& log, const http::Served& served);

// log_served(), but a line about the first of the connections that find the server full, and then one each
// kRefusalInterval that says how many there were: a flood of them must not fill a disk.
// Threads: any.
class AccessLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kRefusalInterval{10};

  explicit AccessLog(Logger log) : log_(std::move(log)) {}
  void add(const http::Served& served, Clock::time_point now = Clock::now());

 private:
  const Logger log_;
  std::mutex mutex_;                            // guards what follows
  std::optional<Clock::time_point> last_line_;  // about a connection that was refused
  std::uint64_t n_unsaid_ = 0;                  // refused since
};

}  // namespace terrace::serve
