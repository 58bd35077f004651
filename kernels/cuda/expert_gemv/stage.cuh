// Bringing a tile of weight rows and the rows of x of one pass into shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/expert_gemv/kernel_args.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/x_rows.h"

namespace terrace::kernels::cuda {

// 16 bytes, asynchronously; of the source only `bytes` are read, zeros follow.
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, std::uint32_t bytes) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ GemvGroup group_of_block(const GemvKernelArgs& args) {
  GemvGroup group = args.groups != nullptr ? args.groups[blockIdx.y] : args.only;
  group.n = min(group.n, args.max_rows);
  return group;
}

// Where staged row r of the tile begins: rows keep their place within 16 bytes.
__device__ __forceinline__ std::uint32_t row_shift(std::uint64_t row, std::uint32_t row_bytes) {
  return static_cast<std::uint32_t>(row * row_bytes) & 15;
}

// Starts the copies of rows [first, first + tile_rows) that the matrix has; a warp takes a row at a time.
__device__ __forceinline__ void stage_weights(const GemvKernelArgs& args, const std::byte* w, std::uint32_t first,
                                              std::uint8_t* shared) {
  const GemvPlan& plan = args.plan;
  const std::uint32_t n = min(plan.tile_rows, args.weight_rows - first);
  for (std::uint32_t r = threadIdx.x / 32; r < n; r += kGemvThreads / 32) {
    const std::uint32_t shift = row_shift(first + r, plan.w_row_bytes);
    const std::byte* from = w + static_cast<std::uint64_t>(first + r) * plan.w_row_bytes - shift;
    const std::uint32_t end = shift + plan.w_row_bytes;
    for (std::uint32_t at = threadIdx.x % 32 * 16; at < end; at += 32 * 16)
      copy_16_async(shared + r * plan.w_stride + at, from + at, min(16u, end - at));
  }
}

// The row of x behind row `index` of the groups.
__device__ __forceinline__ const std::byte* x_row(const GemvKernelArgs& args, std::uint32_t index) {
  const std::uint64_t row = args.x_rows != nullptr ? args.x_rows[index] : index;
  return args.x + row * args.x_stride;
}

// One row of x in blocks of XValues (docs/numerics.md 2) taken apart, with sums over each SumValues: all threads.
template <int XValues, int SumValues>
__device__ __forceinline__ void stage_x_blocks(const GemvPlan& plan, std::uint32_t cols, const std::byte* row,
                                               std::uint8_t* shared) {
  constexpr std::uint32_t kWords = XValues / 4;
  const auto* from = reinterpret_cast<const std::uint32_t*>(row);
  const std::uint32_t n_words = cols / 4;
  for (std::uint32_t i = threadIdx.x; i - threadIdx.x % 32 < n_words; i += kGemvThreads) {
    const bool valid = i < n_words;
    const std::uint32_t block = i / kWords;
    const std::uint32_t word = valid ? from[block * (kWords + 1) + 1 + i % kWords] : 0;
    std::int32_t sum = dot4(word, 0x01010101u, 0);
#pragma unroll
    for (int apart = 1; apart < SumValues / 4; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (!valid) continue;
    reinterpret_cast<std::uint32_t*>(shared)[i] = word;
    if (i % kWords == 0)
      *reinterpret_cast<std::uint32_t*>(shared + plan.x_d_offset + block * 4) = from[block * (kWords + 1)];
    if (i % (SumValues / 4) == 0)
      reinterpret_cast<std::int16_t*>(shared + plan.x_sums_offset)[i / (SumValues / 4)] =
          static_cast<std::int16_t>(sum);
  }
}

}  // namespace terrace::kernels::cuda
