#include "coordinator/legs/node_control.h"

#include <fmt/core.h>

namespace terrace::legs {

Result<ProbedNode> NodeControl::probe(std::uint64_t) {
  return Error(ErrorCode::kRefused, fmt::format("{}: cannot be probed", address()));
}

}  // namespace terrace::legs
