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

}  // namespace terrace::serve
