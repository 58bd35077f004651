// The log: lines on stderr, for people or (--log-json) for machines.
//
//   12:03:04.512 info box1:9000: session 7 opened
//   {"time":"2026-02-03T12:03:04.512Z","level":"info","name":"box1:9000","text":"session 7 opened"}
//   12:03:04.517 info [req-5f0c] 200, 812 ms
//   {"time":"2026-02-03T12:03:04.517Z","level":"info","request":"req-5f0c","text":"200, 812 ms"}
//
// A Logger is a small value that is passed down; there is no global one. Copies share the sink.
// Threads: any may write at any time; a line is written whole.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/environment.h"

namespace terrace {

class OptionTable;

enum class LogLevel { kDebug, kInfo, kWarn, kError };
const char* name(LogLevel level);  // "debug", "info", "warning", "error"

struct LogOptions {
  LogLevel level = LogLevel::kInfo;  // lines below it are dropped
  bool json = false;
  bool timestamps = true;  // of plain lines; JSON always has them
  bool colour = false;     // of plain lines; see colour_wanted()
};

// Declares --log-level and --log-json below the heading "Log".
void add_log_options(OptionTable& table, LogOptions* options);

// `fd` is a terminal that is not dumb, and NO_COLOR is not set (no-color.org).
bool colour_wanted(const Environment& environment, int fd);

class Logger {
 public:
  static Logger to_stderr(const LogOptions& options);
  // For tests and for programs that show lines their own way. `write` gets the level and the text without time or
  // level, one call at a time.
  static Logger to_function(LogLevel level, std::function<void(LogLevel, std::string_view)> write);
  static Logger silent();

  // The same log; its lines begin with "name: " (in JSON: a field).
  Logger named(std::string name) const;
  // The same log; its lines begin with "[id] " (in JSON: the field "request"), so that all lines about one request can
  // be found. The id may come from a client.
  Logger for_request(std::string id) const;

  bool enabled(LogLevel level) const;
  // Control characters are escaped, so that text from a peer or a file cannot forge a second line.
  void write(LogLevel level, std::string_view text) const;

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kWarn, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kError, format, std::forward<Args>(args)...);
  }

 private:
  struct Sink;
  explicit Logger(std::shared_ptr<const Sink> sink) : sink_(std::move(sink)) {}

  template <class... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
  }

  std::shared_ptr<const Sink> sink_;  // null: silent
  std::string name_;
  std::string request_;
};

}  // namespace terrace
