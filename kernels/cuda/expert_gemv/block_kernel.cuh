// The GEMVs of block types: kernels/cuda/weights and mma.cuh say what is made of a block. Chunk values go to shared
// memory and are added in order there.
#pragma once

#include "kernels/cuda/expert_gemv/gemm.cuh"
#include "kernels/cuda/expert_gemv/mma.cuh"
#include "kernels/cuda/expert_gemv/stage.cuh"

namespace terrace::kernels::cuda {

template <class Type>
__device__ __forceinline__ CardRows card_rows(const Tile& tile, std::uint32_t buffer) {
  constexpr std::uint32_t kXValues = Type::kValues;  // x comes in blocks of as many values
  const CardRowLayout at = card_row_layout(kXValues, tile.args.cols);
  return {tile.x_buffer(buffer), tile.plan().x_stride, at.d, Type::kXSumValues == 16 ? at.sums16 : at.sums32};
}

// One row of x a pass: a thread takes (weight row, block), rows fastest, so that a warp reads one x block for its 32
// weight rows, a broadcast.
template <class Type>
__device__ __forceinline__ void run_blocks(const GemvKernelArgs& args, const Tile& tile) {
  const std::uint32_t n_blocks = args.cols / Type::kValues;
  tile.run([&](std::uint32_t first, std::uint32_t buffer) {
    const CardRows x = card_rows<Type>(tile, buffer);
    for (std::uint32_t i = threadIdx.x; i < n_blocks << args.plan.log_tile_rows; i += blockDim.x) {
      const std::uint32_t r = i & (args.plan.tile_rows - 1), c = i >> args.plan.log_tile_rows;
      tile.chunk_value(c, 0, r) = Type::value(tile.weight_row<Type::kBlockBytes>(r) + c * Type::kBlockBytes, x, c);
    }
    __syncthreads();
    tile.add_chunks(first, n_blocks);
  });
}

// Grid: (tiles of a matrix, groups).
template <class Type>
__global__ void __launch_bounds__(256) gemv_blocks(const GemvKernelArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  const GemvGroup group = group_of_block(args);
  if (group.n == 0) return;
  run_blocks<Type>(args, {args, group, blockIdx.x << args.plan.log_tile_rows, shared});
}

// Eight rows of x a pass: a warp takes (16 weight rows, block).
template <class Type>
__global__ void __launch_bounds__(256) gemv_mma(const GemvKernelArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  const GemvGroup group = group_of_block(args);
  if (group.n == 0) return;
  const Tile tile{args, group, blockIdx.x << args.plan.log_tile_rows, shared};
  const std::uint32_t n_blocks = args.cols / Type::kValues, log_parts = args.plan.log_tile_rows - 4;
  tile.run([&](std::uint32_t first, std::uint32_t buffer) {
    const CardRows x = card_rows<Type>(tile, buffer);
    for (std::uint32_t item = threadIdx.x / 32; item < n_blocks << log_parts; item += blockDim.x / 32) {
      const std::uint32_t c = item >> log_parts;
      const std::uint32_t r = (item & ((1u << log_parts) - 1)) * 16 + MmaBlocks::g();
      const MmaBlocks blocks{{tile.weight_row<Type::kBlockBytes>(r) + c * Type::kBlockBytes,
                              tile.weight_row<Type::kBlockBytes>(r + 8) + c * Type::kBlockBytes},
                             x,
                             c};
      float v[4];
      mma_values<Type>(blocks, v);
#pragma unroll
      for (int n = 0; n < 4; ++n) tile.chunk_value(c, 2 * MmaBlocks::i() + n % 2, r + n / 2 * 8) = v[n];
    }
    __syncthreads();
    tile.add_chunks(first, n_blocks);
  });
}

template <class Type>
void launch_gemv_blocks(const GemvKernelArgs& args, CUstream_st* stream) {
  if constexpr (Type::kValues == 256) {
    if (args.gemm.columns != 0) return launch_gemm<Type>(args, stream);
  }
  if (args.plan.method == GemvMethod::kMma) {
    launch_with_shared(gemv_mma<Type>, args, stream);
  } else {
    launch_with_shared(gemv_blocks<Type>, args, stream);
  }
}

}  // namespace terrace::kernels::cuda
