#include "coordinator/serve/routes/access_log.h"

#include <fmt/format.h>

#include <string_view>

namespace terrace::serve {
namespace {

bool is_of_a_monitor(std::string_view path) {
  return path == "/health" || path == "/v1/health" || path.starts_with("/health/") || path == "/metrics";
}

LogLevel level_of(const http::Served& served) {
  if (is_of_a_monitor(served.path)) return LogLevel::kDebug;
  if (served.status == 503) return LogLevel::kWarn;
  return served.status >= 500 || !served.failure.empty() ? LogLevel::kError : LogLevel::kInfo;
}

// A connection too many is answered before anything of it is read; each other 503 has a method.
bool is_refused_connection(const http::Served& served) { return served.status == 503 && served.method.empty(); }

}  // namespace

void log_served(const Logger& log, const http::Served& served) {
  const LogLevel level = level_of(served);
  if (!log.enabled(level)) return;
  log.for_request(served.id).write(
      level, fmt::format("{} {} {} {} {} ms, {} bytes in, {} out{}{}{}", served.remote,
                         served.method.empty() ? "-" : served.method, served.path.empty() ? "-" : served.path,
                         served.status, served.took.count(), served.bytes_in, served.bytes_out,
                         served.complete ? "" : ", not complete", served.failure.empty() ? "" : ": ", served.failure));
}

void AccessLog::add(const http::Served& served, Clock::time_point now) {
  if (!is_refused_connection(served)) return log_served(log_, served);
  std::uint64_t n_unsaid = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (last_line_ && now - *last_line_ < kRefusalInterval) {
      ++n_unsaid_;
      return;
    }
    last_line_ = now;
    n_unsaid = std::exchange(n_unsaid_, 0);
  }
  if (n_unsaid > 0) log_.warn("{} more connections were refused since the last line about one", n_unsaid);
  log_served(log_, served);
}

}  // namespace terrace::serve
