#include "coordinator/legs/node_control.h"

#include <fmt/core.h>

namespace terrace::legs {

Result<ProbedNode> NodeControl::probe(std::uint64_t) {
  return Error(ErrorCode::kRefused, fmt::format("{}: cannot be probed", address()));
}

Status NodeControl::resize(std::uint64_t, std::uint64_t) {
  return Error(ErrorCode::kRefused, fmt::format("{}: what it has reserved cannot be changed", address()));
}

}  // namespace terrace::legs
