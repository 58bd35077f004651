#include <fmt/core.h>

#include "kernels/cuda/experts/open.h"

namespace terrace::kernels::cuda {

Result<std::unique_ptr<ExpertCard>> open_expert_card(std::uint32_t index, std::optional<std::uint64_t>) {
  return Error(
      ErrorCode::kUnsupported,
      fmt::format("card {}: this build has no kernels for cards; build it where nvcc 13 is (docs/hacking.md)", index));
}

}  // namespace terrace::kernels::cuda
