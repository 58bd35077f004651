// The cards of this machine as computers of experts. Built everywhere: without kernels for cards (no nvcc, or
// TERRACE_CUDA=OFF) it says so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/base/result.h"
#include "kernels/card/expert_card.h"

namespace terrace::kernels::cuda {

// Takes `budget_bytes` of card `index`, and of it two executors' workspaces; without a budget nine tenths of what is
// free. kUnsupported: this build has no kernels for cards, or none for this one; no driver, or one that is too old.
// kNotFound: no such card. kOutOfMemory: less is free, with the numbers.
Result<std::unique_ptr<ExpertCard>> open_expert_card(std::uint32_t index, std::optional<std::uint64_t> budget_bytes);

}  // namespace terrace::kernels::cuda
