// Bringing a tile of weight rows and the rows of x of one pass into shared memory, and adding chunk values in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/expert_gemv/kernel_args.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {

// 16 bytes, asynchronously; of the source only `bytes` are read, zeros follow.
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, std::uint32_t bytes) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Where staged row r of the tile begins: rows keep their place within 16 bytes.
__device__ __forceinline__ std::uint32_t row_shift(std::uint32_t row, std::uint32_t row_bytes) {
  return row * row_bytes & 15;
}

// One thread block's work: a tile of a group's matrix.
struct Tile {
  const GemvKernelArgs& args;
  const GemvGroup& group;
  std::uint32_t first_row;  // of the tile
  std::uint8_t* shared;

  __device__ __forceinline__ const GemvPlan& plan() const { return args.plan; }

  // Starts the copies of the tile's rows that the matrix has; a warp takes a row at a time.
  __device__ __forceinline__ void stage_weights() const {
    const std::uint32_t n = min(plan().tile_rows, args.weight_rows - first_row);
    for (std::uint32_t r = threadIdx.x / 32; r < n; r += blockDim.x / 32) {
      const std::uint32_t shift = row_shift(first_row + r, plan().w_row_bytes);
      const std::byte* from = group.w + static_cast<std::uint64_t>(first_row + r) * plan().w_row_bytes - shift;
      const std::uint32_t end = shift + plan().w_row_bytes;
      for (std::uint32_t at = threadIdx.x % 32 * 16; at < end; at += 32 * 16)
        copy_16_async(shared + r * plan().w_stride + at, from + at, min(16u, end - at));
    }
  }

  // Starts the copies of the rows of x of the pass that begins with row `first` of the group. What lies at rows behind
  // the group's last is anything; their results are not written.
  __device__ __forceinline__ void stage_x(std::uint32_t first, std::uint32_t buffer) const {
    const std::uint32_t n = min(plan().pass_rows, group.n - first);
    for (std::uint32_t j = threadIdx.x / 32; j < n; j += blockDim.x / 32) {
      const std::uint32_t index = group.first + first + j;
      const std::uint64_t row = args.x_rows != nullptr ? args.x_rows[index] : index;
      const std::byte* from = args.x + row * args.x_stride;
      for (std::uint32_t at = threadIdx.x % 32 * 16; at < plan().x_row_bytes; at += 32 * 16)
        copy_16_async(x_buffer(buffer) + j * plan().x_stride + at, from + at, 16);
    }
  }
  __device__ __forceinline__ std::uint8_t* x_buffer(std::uint32_t buffer) const {
    return shared + plan().x_offset + buffer * plan().pass_rows * plan().x_stride;
  }

  // Weight row r of the tile, staged; kAlignment divides the bytes of a row.
  template <int kAlignment>
  __device__ __forceinline__ const std::uint8_t* weight_row(std::uint32_t r) const {
    const std::uint32_t shift = kAlignment % 16 == 0 ? 0 : row_shift(first_row + r, plan().w_row_bytes);
    return shared + r * plan().w_stride + shift;
  }
  // Chunk value of block c, row j of the pass, weight row r of the tile.
  __device__ __forceinline__ float& chunk_value(std::uint32_t c, std::uint32_t j, std::uint32_t r) const {
    return reinterpret_cast<float*>(shared + plan().v_offset)[(c * plan().pass_rows + j) * plan().v_stride + r];
  }

  // The ordered add of the contract, a thread to a result.
  __device__ __forceinline__ void add_chunks(std::uint32_t first, std::uint32_t n_blocks) const {
    for (std::uint32_t i = threadIdx.x; i < plan().pass_rows << plan().log_tile_rows; i += blockDim.x) {
      const std::uint32_t r = i & (plan().tile_rows - 1), j = i >> plan().log_tile_rows;
      if (first + j >= group.n || first_row + r >= args.weight_rows) continue;
      float sum = 0.0f;
#pragma unroll 4
      for (std::uint32_t c = 0; c < n_blocks; ++c) sum = sum + chunk_value(c, j, r);
      write(first + j, r, sum);
    }
  }
  __device__ __forceinline__ void write(std::uint32_t row, std::uint32_t r, float sum) const {
    args.y[(group.first + row) * args.y_stride + first_row + r] = sum;
  }

  // All passes: `compute(first, buffer)` runs over staged rows; afterwards no thread may read them.
  template <class Compute>
  __device__ __forceinline__ void run(Compute compute) const {
    stage_weights();
    stage_x(0, 0);
    std::uint32_t buffer = 0;
    for (std::uint32_t first = 0; first < group.n; first += plan().pass_rows, buffer ^= 1) {
      wait_for_copies();
      __syncthreads();
      const std::uint32_t next = first + plan().pass_rows;
      if (plan().x_buffers == 1) {
        compute(first, 0);
        if (next >= group.n) return;
        __syncthreads();
        stage_x(next, 0);
      } else {
        if (next < group.n) stage_x(next, buffer ^ 1);
        compute(first, buffer);
      }
    }
  }
};

// The block's group, with no more rows than were announced.
__device__ __forceinline__ GemvGroup group_of_block(const GemvKernelArgs& args) {
  GemvGroup group = args.groups != nullptr ? args.groups[blockIdx.y] : args.only;
  group.n = min(group.n, args.max_rows);
  return group;
}

template <class Kernel>
void launch_with_shared(Kernel kernel, const GemvKernelArgs& args, CUstream_st* stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(args.plan.shared_bytes));
  kernel<<<dim3(args.plan.tiles, args.n_groups), args.plan.threads, args.plan.shared_bytes, stream>>>(args);
}

}  // namespace terrace::kernels::cuda
