// The transport of a build without UCX: says so.
#include "common/transport/ucx/ucx.h"

namespace terrace::transport {
namespace {

Error absent() {
  return Error(ErrorCode::kUnsupported,
               "this build has no UCX: install its development files (Debian: libucx-dev) and build again, or use "
               "--link tcp");
}

}  // namespace

struct UcxTransport::Parts {};
UcxTransport::UcxTransport(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
UcxTransport::~UcxTransport() = default;

bool ucx_is_built() { return false; }
void ucx_return_signals() {}
void ucx_prepare_environment(const UcxOptions&) {}

Result<std::unique_ptr<UcxTransport>> UcxTransport::create(const UcxOptions&, const Logger&) { return absent(); }
Result<std::unique_ptr<Listener>> UcxTransport::listen(const std::string&, const Options&) { return absent(); }
Result<std::unique_ptr<Connection>> UcxTransport::connect(const std::string&, const Options&,
                                                          std::chrono::milliseconds) {
  return absent();
}

}  // namespace terrace::transport
