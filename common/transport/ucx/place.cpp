#include <fmt/format.h>

#include "common/transport/ucx/ucx.h"

namespace terrace::transport {

Status check_ucx_place(const UcxOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const Interface interface, find_interface(options.interface));
  if (!interface.loopback && !options.trusted_net)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("interface {} is not loopback, and UCX is for trusted networks alone: give --trusted-net "
                             "CIDR, or --interface lo",
                             options.interface));
  for (const std::string& address : interface.addresses)
    if (options.trusted_net ? options.trusted_net->contains(address) : is_loopback(address)) return {};
  return Error(ErrorCode::kInvalidArgument, options.trusted_net
                                                ? fmt::format("interface {} has no address in {} (--trusted-net)",
                                                              options.interface, options.trusted_net->text())
                                                : fmt::format("interface {} has no address", options.interface));
}

}  // namespace terrace::transport
