// How fast a card reads its own memory: what kernels that are bound by weights are held against.
// Threads  As Card's make functions.
#pragma once

#include <cstddef>
#include <span>

#include "common/base/result.h"
#include "kernels/cuda/device/card.h"

namespace terrace::kernels::cuda {

// Bytes a second, the best of some passes over `memory`, which is this card's, begins at a multiple of 16 and is much
// larger than its caches; what lies there does not matter and stays. Waits. kInvalidArgument: there are no 16 bytes.
// kInternal: the card failed; names it.
Result<double> measure_read_rate(const Card& card, std::span<const std::byte> memory);

}  // namespace terrace::kernels::cuda
