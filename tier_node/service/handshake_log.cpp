#include "tier_node/service/handshake_log.h"

#include <grpc/support/log.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/seldom.h"

namespace terrace::node {

struct HandshakeLog::Impl {
  Logger log;
  std::string where;
  Seldom seldom;
};

// gRPC's log is one for the process and takes a plain function: so this list is, too.
struct HandshakeLogs {
  static HandshakeLogs& of_process() {
    static HandshakeLogs logs;
    return logs;
  }
  void tell(std::string_view reason) {
    const std::lock_guard lock(mutex);
    for (HandshakeLog::Impl* const each : living)
      if (const auto left_out = each->seldom.happened())
        each->log.warn(
            "{}: a client was refused in the TLS handshake: {}; secret, certificate or clock? Or no client of ours{}",
            each->where, reason, and_left_out(*left_out));
  }
  std::mutex mutex;
  std::vector<HandshakeLog::Impl*> living;
};

namespace {

// "Handshake failed with fatal error SSL_ERROR_SSL: error:0A000086:SSL routines::certificate verify failed."
void read_grpc_log(gpr_log_func_args* line) {
  constexpr std::string_view kFailed = "Handshake failed";
  std::string_view text(line->message);
  if (!text.starts_with(kFailed)) return;
  const std::size_t reason = text.find("error:");
  if (reason != std::string_view::npos) text.remove_prefix(reason);
  if (const std::size_t last = text.rfind("::"); last != std::string_view::npos) text.remove_prefix(last + 2);
  while (text.ends_with('.')) text.remove_suffix(1);
  HandshakeLogs::of_process().tell(text);
}

}  // namespace

void HandshakeLog::take_over() { gpr_set_log_function(read_grpc_log); }

HandshakeLog::HandshakeLog(Logger log, std::string where)
    : impl_(std::make_unique<Impl>(Impl{std::move(log), std::move(where), Seldom()})) {
  HandshakeLogs& logs = HandshakeLogs::of_process();
  const std::lock_guard lock(logs.mutex);
  logs.living.push_back(impl_.get());
}

HandshakeLog::~HandshakeLog() {
  HandshakeLogs& logs = HandshakeLogs::of_process();
  const std::lock_guard lock(logs.mutex);
  std::erase(logs.living, impl_.get());
}

}  // namespace terrace::node
