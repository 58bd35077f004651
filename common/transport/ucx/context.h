// UCX set up as the options say. Only for common/transport/ucx.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/transport/ucx/ucx.h"

namespace terrace::transport {

// Bytes from which UCX fetches a message into its place instead of sending it at once. Its own choice is about 20 KB on
// TCP, where a batch of decode would pay an extra round trip.
inline constexpr const char* kRendezvousFrom = "256k";

// What `status` means: "Connection reset by remote peer".
const char* text_of(ucs_status_t status);

class Context {
 public:
  // kIo: UCX refuses a setting, or finds no device.
  static Result<std::shared_ptr<Context>> create(const UcxOptions& options, const Logger& log);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ucp_context_h handle() const { return handle_; }

 private:
  explicit Context(ucp_context_h handle) : handle_(handle) {}
  ucp_context_h handle_;
};

}  // namespace terrace::transport
