#include "coordinator/legs/node_control.h"

#include <fmt/core.h>

namespace terrace::legs {

Result<ProbedNode> NodeControl::probe(std::uint64_t) {
  return Error(ErrorCode::kRefused, fmt::format("{}: cannot be probed", address()));
}

Status NodeControl::resize(std::uint64_t, std::uint64_t) {
  return Error(ErrorCode::kRefused, fmt::format("{}: what it has reserved cannot be changed", address()));
}

Status NodeControl::acknowledge(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                                FunctionRef<Status(const AssignProgress&)> on_progress) {
  return assign(session, epoch, share, on_progress);
}

Status NodeControl::give_back(std::uint64_t session, std::uint64_t slab_bytes) { return resize(session, slab_bytes); }

}  // namespace terrace::legs
