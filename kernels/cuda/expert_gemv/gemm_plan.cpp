#include "kernels/cuda/expert_gemv/gemm_plan.h"

#include <algorithm>

namespace terrace::kernels::cuda {
namespace {

// Groups of a layer's experts differ in size and are known on the card alone: enough slices that a large one does not
// keep the others waiting, few enough that those without work cost nothing.
constexpr std::uint32_t kMostSlicesOfGroups = 4;

GemmPlan cut(const GemvShape& shape, std::uint32_t tile_rows, std::uint32_t columns, std::uint32_t shared_bytes) {
  GemmPlan plan;
  plan.columns = columns;
  plan.tiles = (shape.weight_rows + tile_rows - 1) / tile_rows;
  plan.slices = (shape.max_rows + columns - 1) / columns;
  if (shape.groups > 1) plan.slices = std::min(plan.slices, kMostSlicesOfGroups);
  plan.shared_bytes = shared_bytes;
  return plan;
}

}  // namespace

GemmPlan plan_gemm(const GemvShape& shape, const GemvCard& card, std::uint32_t from_rows) {
  const bool is_float = shape.activation == ActivationClass::kF32;
  if (shape.max_rows < (is_float ? std::min(from_rows, kFloatGemmFromRows) : from_rows)) return {};
  if (is_float) return cut(shape, kFloatGemmRows, kFloatGemmRows, 0);
  if (shape.activation != ActivationClass::kA8x256) return {};
  const std::uint32_t block_bytes = info(shape.type).block_bytes;
  for (const std::uint32_t columns : {128u, 64u}) {
    const GemmPlan plan = cut(shape, kGemmTileRows, columns, gemm_shared_bytes(block_bytes, columns));
    // One matrix: thread blocks enough for the card, if narrower ones give them.
    const bool too_few =
        shape.max_rows <= columns / 2 || (shape.groups == 1 && plan.tiles * plan.slices < card.multiprocessors);
    if (plan.shared_bytes <= card.shared_bytes_per_block && (columns == 64 || !too_few)) return plan;
  }
  return {};
}

}  // namespace terrace::kernels::cuda
