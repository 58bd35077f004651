#include "common/transport/ucx/context.h"

#include <fmt/format.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

#include "common/base/block_signals.h"
#include "common/base/library_settings.h"

namespace terrace::transport {
namespace {

// UCX's log handler takes nothing of ours along, so this one thing is the process's: UCX's own state is, too.
struct UcxLog {
  std::once_flag once;
  Logger log = Logger::silent();
};
UcxLog& ucx_log() {
  static UcxLog log;
  return log;
}

LogLevel level_of(ucs_log_level_t level) {
  if (level <= UCS_LOG_LEVEL_ERROR) return LogLevel::kError;
  if (level == UCS_LOG_LEVEL_WARN) return LogLevel::kWarn;
  return LogLevel::kDebug;
}

// Without it UCX writes to stdout, which is the result's.
ucs_log_func_rc_t pass_on(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                          const char* message, va_list arguments) {
  const Logger& log = ucx_log().log;
  if (!log.enabled(level_of(level))) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), message, arguments);
  log.write(level_of(level), fmt::format("ucx: {}", text.data()));
  return UCS_LOG_FUNC_RC_STOP;
}

struct FreeConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, FreeConfig>;

Status set(ucp_config_t* config, const char* key, const std::string& value) {
  const ucs_status_t status = ucp_config_modify(config, key, value.c_str());
  if (status == UCS_OK) return {};
  return Error(ErrorCode::kIo, fmt::format("UCX does not take {}={}: {}", key, value, text_of(status)));
}

Result<Config> configure(const UcxOptions& options) {
  ucp_config_t* raw = nullptr;
  const ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) return Error(ErrorCode::kIo, fmt::format("UCX reads no settings: {}", text_of(status)));
  Config config(raw);
  const bool rdma = !options.rdma_device.empty();
  TERRACE_RETURN_IF_ERROR(set(raw, "TLS", rdma ? "tcp,rc,ud" : "tcp"));
  TERRACE_RETURN_IF_ERROR(
      set(raw, "NET_DEVICES", rdma ? options.interface + "," + options.rdma_device : options.interface));
  TERRACE_RETURN_IF_ERROR(set(raw, "RNDV_THRESH", kRendezvousFrom));
  if (rdma) return config;
  // UCX 1.13 asserts where a TCP peer dies while bytes leave from where they lie (uct_invoke_completion): they are
  // copied first, those that are fetched too.
  TERRACE_RETURN_IF_ERROR(set(raw, "ZCOPY_THRESH", "inf"));
  TERRACE_RETURN_IF_ERROR(set(raw, "RNDV_SCHEME", "am"));
  return config;
}

}  // namespace

const char* text_of(ucs_status_t status) { return ucs_status_string(status); }

void ucx_return_signals() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) ucs_debug_disable_signal(signal);
}

void ucx_prepare_environment(const UcxOptions& options) {
  set_in_environment("UCX_TCP_PORT_RANGE", fmt::format("{}-{}", options.ports.first, options.ports.last));
  set_in_environment("UCX_TCP_CM_REUSEADDR", "y");  // else its ports stay taken for a minute after it ended
  set_in_environment("UCX_TCP_AF_PRIO", options.ipv6 ? "inet6,inet" : "inet,inet6");
}

Result<std::shared_ptr<Context>> Context::create(const UcxOptions& options, const Logger& log) {
  std::call_once(ucx_log().once, [&] {
    ucx_log().log = log;
    ucs_log_push_handler(&pass_on);
  });
  TERRACE_ASSIGN_OR_RETURN(const Config config, configure(options));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // each worker has one thread, but they share the context
  params.name = "terrace";
  const BlockSignals blocked;  // in UCX's thread, which would take them from ours
  ucp_context_h handle = nullptr;
  const ucs_status_t status = ucp_init(&params, config.get(), &handle);
  if (status != UCS_OK)
    return Error(ErrorCode::kIo,
                 fmt::format("UCX cannot use interface {}{}{}: {}", options.interface,
                             options.rdma_device.empty() ? "" : " and device ", options.rdma_device, text_of(status)));
  return std::shared_ptr<Context>(new Context(handle));
}

Context::~Context() { ucp_cleanup(handle_); }

}  // namespace terrace::transport
