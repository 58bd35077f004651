// Attention of few rows, or of heads of any size: kernels/cuda/attention/attention.h chooses.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace terrace::kernels::cuda {

// Writes one partial for each split of a (row, head).
void launch_splits(const Stream& stream, const AttentionArgs& args);

}  // namespace terrace::kernels::cuda
