// When many rows meet the same weights: how the tensor cores' kernel of K-types (gemm.cuh) is cut. Plain C++ from
// shapes alone, so it is tested without a card.
//
// One thread block takes kGemmTileRows weight rows and up to `columns` rows of x, and goes along their blocks of 256
// values in two stages of shared memory: one arrives while the other is computed.
#pragma once

#include <cstdint>

#include "kernels/cuda/expert_gemv/plan.h"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kGemmTileRows = 128, kGemmThreads = 256;  // a warp to 16 weight rows
// The kernel of F32, F16 and BF16 (float_gemm.cuh) takes so many weight rows and rows of x at once.
inline constexpr std::uint32_t kFloatGemmRows = 32;
// Rows of one matrix below which a GEMV is as fast: it has more thread blocks. Of float types a GEMV has less.
inline constexpr std::uint32_t kGemmFromRows = 128, kFloatGemmFromRows = 32;
// Values of x lie in the form that the tensor cores read: 16 values each of eight rows together (128 bytes), then those
// of the next 16 values, then those of the next eight rows. Nine times 16 bytes apart, so that a row's 256 values are
// written to all banks.
inline constexpr std::uint32_t kGemmPartStride = 144, kGemmEightRows = 16 * kGemmPartStride;
inline constexpr std::uint32_t kGemmSumBytes = 16;  // of a row of x: the sums of eight sub-blocks

// A block of a weight row as it is brought: whole sixteens around it, an odd number of them apart.
constexpr std::uint32_t gemm_w_stride(std::uint32_t block_bytes) {
  const std::uint32_t sixteens = block_bytes % 16 == 0 ? block_bytes / 16 : (block_bytes + 14 + 15) / 16;
  return 16 * (sixteens | 1);
}
// A stage: weights, then values, sums and scales of x.
constexpr std::uint32_t gemm_x_offset(std::uint32_t block_bytes) { return kGemmTileRows * gemm_w_stride(block_bytes); }
constexpr std::uint32_t gemm_sums_offset(std::uint32_t block_bytes, std::uint32_t columns) {
  return gemm_x_offset(block_bytes) + columns / 8 * kGemmEightRows;
}
constexpr std::uint32_t gemm_d_offset(std::uint32_t block_bytes, std::uint32_t columns) {
  return gemm_sums_offset(block_bytes, columns) + columns * kGemmSumBytes;
}
constexpr std::uint32_t gemm_stage_bytes(std::uint32_t block_bytes, std::uint32_t columns) {
  return gemm_d_offset(block_bytes, columns) + columns * static_cast<std::uint32_t>(sizeof(float));
}
// Two stages, then the numbers of the rows of x.
constexpr std::uint32_t gemm_shared_bytes(std::uint32_t block_bytes, std::uint32_t columns) {
  return 2 * gemm_stage_bytes(block_bytes, columns) + columns * static_cast<std::uint32_t>(sizeof(std::uint32_t));
}

struct GemmPlan {
  std::uint32_t columns = 0;  // rows of x that a thread block takes at once; 0: this is work for a GEMV
  std::uint32_t tiles = 0;    // thread blocks along the weight rows
  std::uint32_t slices = 0;   // along the rows of x of a group: slice s takes columns s, s + slices, ... of them
  std::uint32_t shared_bytes = 0;
};

// Shapes that plan_gemv() takes. `columns` is 0 where the type has no such kernel, groups have less than `from_rows`,
// or the card has too little shared memory.
GemmPlan plan_gemm(const GemvShape& shape, const GemvCard& card, std::uint32_t from_rows);

}  // namespace terrace::kernels::cuda
