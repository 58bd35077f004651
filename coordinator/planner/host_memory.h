// The memory that this process takes beside the experts: from the headers of the file and the options, before anything
// is loaded. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "coordinator/arch/trunk.h"
#include "kernels/executor/executor.h"

namespace terrace::planner {

// Keys and values of streams that hold `positions` in all, in whole blocks.
std::uint64_t cache_bytes(const arch::ModelInfo& model, std::uint64_t positions);
// Positions that fit into `bytes`.
std::uint64_t positions_in(const arch::ModelInfo& model, std::uint64_t bytes);

// A limit of what the trunk's steps of `rows` rows need: the rows between the operations of a layer (residual and
// norms, q, k, v, attention's output, quantised rows, sums, batches to legs), and one row of logits.
std::uint64_t trunk_scratch_bytes(const arch::ModelInfo& model, std::uint64_t rows);
// Of the host leg's executor.
std::uint64_t executor_scratch_bytes(std::span<const kernels::ExpertKernels> layers, std::size_t n_workers);

// The program without a model's weights: code, tokenizer, tensor tables, stacks.
inline constexpr std::uint64_t kProgramBytes = std::uint64_t{8} << 20;

}  // namespace terrace::planner
