// The GEMV of block types: kernels/cuda/weights says what a thread makes of one block.
//
// Threads take (weight row, block) with rows fastest, so that a warp reads one x block for its 32 weight rows: a
// broadcast. Chunk values go to shared memory and are added in order there, a thread to a result.
#pragma once

#include "kernels/cuda/expert_gemv/kernel_args.h"
#include "kernels/cuda/expert_gemv/stage.cuh"

namespace terrace::kernels::cuda {

template <class Type, int XValues, int J>
struct BlockPass {
  const GemvKernelArgs& args;
  const GemvGroup& group;
  std::uint32_t first_row;  // of the tile
  std::uint8_t* shared;

  // Rows of x behind the group's last are the last one again; their results are not written.
  __device__ void stage(std::uint32_t first) const {
#pragma unroll
    for (int j = 0; j < J; ++j) {
      const std::uint32_t index = group.first + min(first + j, group.n - 1);
      stage_x_blocks<XValues, Type::kXSumValues>(args.plan, args.cols, x_row(args, index),
                                                 shared + args.plan.x_offset + j * args.plan.x_stride);
    }
  }

  __device__ void compute() const {
    const GemvPlan& plan = args.plan;
    const XRows x{shared + plan.x_offset, plan.x_stride, plan.x_d_offset, plan.x_sums_offset};
    auto* v_out = reinterpret_cast<float*>(shared + plan.v_offset);
    const std::uint32_t n_items = args.cols / Type::kValues << plan.log_tile_rows;
    for (std::uint32_t i = threadIdx.x; i < n_items; i += kGemvThreads) {
      const std::uint32_t r = i & (plan.tile_rows - 1), c = i >> plan.log_tile_rows;
      const std::uint32_t at = r * plan.w_stride + row_shift(first_row + r, plan.w_row_bytes);
      float v[J];
      Type::template values<J>(shared + at + c * Type::kBlockBytes, x, c, v);
#pragma unroll
      for (int j = 0; j < J; ++j) v_out[(c * J + j) << plan.log_tile_rows | r] = v[j];
    }
  }

  __device__ void add(std::uint32_t first) const {
    const GemvPlan& plan = args.plan;
    const auto* v = reinterpret_cast<const float*>(shared + plan.v_offset);
    for (std::uint32_t i = threadIdx.x; i < static_cast<std::uint32_t>(J) << plan.log_tile_rows; i += kGemvThreads) {
      const std::uint32_t r = i & (plan.tile_rows - 1), j = i >> plan.log_tile_rows;
      if (first + j >= group.n || first_row + r >= args.weight_rows) continue;
      float sum = 0.0f;
#pragma unroll 4
      for (std::uint32_t c = 0; c < args.cols / Type::kValues; ++c)
        sum = sum + v[(c * J + j) << plan.log_tile_rows | r];
      args.y[(group.first + first + j) * args.y_stride + first_row + r] = sum;
    }
  }
};

// Grid: (tiles of a matrix, groups).
template <class Type, int XValues, int J>
__global__ void __launch_bounds__(kGemvThreads) gemv_blocks(const GemvKernelArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  const GemvGroup group = group_of_block(args);
  if (group.n == 0) return;
  const std::uint32_t first_row = blockIdx.x << args.plan.log_tile_rows;
  stage_weights(args, group.w, first_row, shared);
  const BlockPass<Type, XValues, J> pass{args, group, first_row, shared};
  for (std::uint32_t first = 0; first < group.n; first += J) {
    pass.stage(first);
    if (first == 0) wait_for_copies();
    __syncthreads();
    pass.compute();
    __syncthreads();
    pass.add(first);
  }
}

template <class Kernel>
void launch_with_shared(Kernel kernel, const GemvKernelArgs& args, CUstream_st* stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(args.plan.shared_bytes));
  kernel<<<dim3(args.plan.tiles, args.n_groups), kGemvThreads, args.plan.shared_bytes, stream>>>(args);
}

template <class Type, int XValues>
void launch_gemv_blocks(const GemvKernelArgs& args, CUstream_st* stream) {
  switch (args.plan.pass_rows) {
    case 1:
      return launch_with_shared(gemv_blocks<Type, XValues, 1>, args, stream);
    case 2:
      return launch_with_shared(gemv_blocks<Type, XValues, 2>, args, stream);
    case 4:
      return launch_with_shared(gemv_blocks<Type, XValues, 4>, args, stream);
    default:
      return launch_with_shared(gemv_blocks<Type, XValues, 8>, args, stream);
  }
}

}  // namespace terrace::kernels::cuda
