#include "coordinator/planner/host_memory.h"

#include <algorithm>

#include "kernels/cpu/ops/ops.h"

namespace terrace::planner {
namespace {

// What lies between the operations of a layer, each at most as wide as so many rows of d_model floats.
constexpr std::uint64_t kRowWidths = 32;

}  // namespace

std::uint64_t cache_bytes(const arch::ModelInfo& model, std::uint64_t positions) {
  const std::uint64_t block = kernels::kKvBlockPositions;
  return (positions + block - 1) / block * block * model.kv_bytes_per_position;
}

std::uint64_t positions_in(const arch::ModelInfo& model, std::uint64_t bytes) {
  const std::uint64_t block = kernels::kKvBlockPositions;
  return bytes / (block * model.kv_bytes_per_position) * block;
}

std::uint64_t trunk_scratch_bytes(const arch::ModelInfo& model, std::uint64_t rows) {
  return rows * kRowWidths * model.d_model * sizeof(float) + std::uint64_t{model.vocabulary} * sizeof(float);
}

std::uint64_t executor_scratch_bytes(std::span<const kernels::ExpertKernels> layers, std::size_t n_workers) {
  std::uint64_t most = 0;
  for (const kernels::ExpertKernels& layer : layers)
    most = std::max(most, kernels::Executor::scratch_bytes(layer, n_workers));
  return most;
}

}  // namespace terrace::planner
