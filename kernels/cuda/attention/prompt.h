// Attention of many rows, for heads of 64 or 128 values: kernels/cuda/attention/attention.h chooses.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace terrace::kernels::cuda {

// Fewer tiles of rows are faster by splits.h.
inline constexpr std::uint32_t kPromptFromTiles = 4;

// Rows that share a thread block, with all query heads of a KV head; 0: not a shape for this kernel.
std::uint32_t prompt_tile_rows(const AttentionArgs& args);

// How results lie in args.scratch: `whole`, one partial a (row, head), of all its splits merged; else one a split.
void launch_prompt_splits(const Stream& stream, const AttentionArgs& args, bool whole);

}  // namespace terrace::kernels::cuda
