#include "common/base/log.h"

#include <fmt/chrono.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/base/options.h"

namespace terrace {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LogLevel::kDebug;
  if (level == spdlog::level::info) return LogLevel::kInfo;
  return level == spdlog::level::warn ? LogLevel::kWarn : LogLevel::kError;
}

std::string_view view(spdlog::string_view_t text) { return {text.data(), text.size()}; }

class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(std::function<void(LogLevel, std::string_view)> write) : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    write_(from_spdlog(message.level), view(message.payload));
  }
  void flush_() override {}

  std::function<void(LogLevel, std::string_view)> write_;
};

std::string escape_controls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// One JSON object; the library's own patterns do not escape.
std::string json_line(LogLevel level, const std::string& name_of_log, const std::string& request,
                      std::string_view text) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<milliseconds>(now).count();
  nlohmann::ordered_json line;
  line["time"] =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
  line["level"] = name(level);
  if (!name_of_log.empty()) line["name"] = name_of_log;
  if (!request.empty()) line["request"] = request;
  line["text"] = text;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string plain_line(const std::string& name_of_log, const std::string& request, std::string_view text) {
  std::string line;
  if (!request.empty()) line += "[" + escape_controls(request) + "] ";
  if (!name_of_log.empty()) line += name_of_log + ": ";
  return line + std::string(text);
}

}  // namespace

const char* name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

void add_log_options(OptionTable& table, LogOptions* options) {
  table.group("Log");
  table.add_choice("log-level", &options->level,
                   {{"debug", LogLevel::kDebug},
                    {"info", LogLevel::kInfo},
                    {"warning", LogLevel::kWarn},
                    {"error", LogLevel::kError}},
                   "say no less than this");
  table.add("log-json", &options->json, "one JSON object a line");
}

bool colour_wanted(const Environment& environment, int fd) {
  return !environment.get("NO_COLOR") && environment.get("TERM").value_or("dumb") != "dumb" && isatty(fd) == 1;
}

struct Logger::Sink {
  spdlog::sink_ptr target;
  spdlog::level::level_enum level;
  bool json;
};

Logger Logger::to_stderr(const LogOptions& options) {
  const auto target = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
      options.colour && !options.json ? spdlog::color_mode::always : spdlog::color_mode::never);
  if (options.json) {
    target->set_pattern("%v");
  } else {
    target->set_pattern(options.timestamps ? "%H:%M:%S.%e %^%l%$ %v" : "%^%l%$: %v");
  }
  return Logger(std::make_shared<Sink>(Sink{target, to_spdlog(options.level), options.json}));
}

Logger Logger::to_function(LogLevel level, std::function<void(LogLevel, std::string_view)> write) {
  const auto target = std::make_shared<FunctionSink>(std::move(write));
  return Logger(std::make_shared<Sink>(Sink{target, to_spdlog(level), false}));
}

Logger Logger::silent() { return Logger(nullptr); }

Logger Logger::named(std::string name) const {
  Logger log = *this;
  log.name_ = std::move(name);
  return log;
}

Logger Logger::for_request(std::string id) const {
  Logger log = *this;
  log.request_ = std::move(id);
  return log;
}

bool Logger::enabled(LogLevel level) const { return sink_ != nullptr && to_spdlog(level) >= sink_->level; }

void Logger::write(LogLevel level, std::string_view text) const {
  if (!enabled(level)) return;
  const std::string escaped = escape_controls(text);
  const std::string line =
      sink_->json ? json_line(level, name_, request_, escaped) : plain_line(name_, request_, escaped);
  // A logger of the library for each line costs nothing: it is a name and a pointer to the sink, and it turns an
  // exception of the sink into one line on stderr.
  spdlog::logger logger(name_, sink_->target);
  logger.set_level(sink_->level);
  logger.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace terrace
