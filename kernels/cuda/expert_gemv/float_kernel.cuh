// The GEMV of F32, F16 and BF16: in 16 lanes (docs/numerics.md 3.2), a thread to a lane of a weight row.
#pragma once

#include "kernels/cuda/expert_gemv/block_kernel.cuh"
#include "kernels/cuda/expert_gemv/stage.cuh"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {

struct F32Element {
  using Stored = float;
  static __device__ __forceinline__ float widen(float w) { return w; }
};
struct F16Element {
  using Stored = std::uint16_t;
  static __device__ __forceinline__ float widen(std::uint16_t w) { return f16_value(w); }
};
struct Bf16Element {
  using Stored = std::uint16_t;
  static __device__ __forceinline__ float widen(std::uint16_t w) { return bits_to_float(std::uint32_t{w} << 16); }
};

template <class Element, int J>
struct FloatPass {
  const GemvKernelArgs& args;
  const GemvGroup& group;
  std::uint32_t first_row;
  std::uint8_t* shared;

  __device__ void stage(std::uint32_t first) const {
#pragma unroll
    for (int j = 0; j < J; ++j) {
      const std::uint32_t index = group.first + min(first + j, group.n - 1);
      const auto* from = reinterpret_cast<const float*>(x_row(args, index));
      auto* to = reinterpret_cast<float*>(shared + args.plan.x_offset + j * args.plan.x_stride);
      for (std::uint32_t i = threadIdx.x; i < args.cols; i += kGemvThreads) to[i] = from[i];
    }
  }

  __device__ void compute(std::uint32_t first) const {
    const GemvPlan& plan = args.plan;
    const std::uint32_t lane = threadIdx.x % kLanes;
    for (std::uint32_t r = threadIdx.x / kLanes; r - threadIdx.x / kLanes < plan.tile_rows;
         r += kGemvThreads / kLanes) {
      float sum[J] = {};
      if (r < plan.tile_rows) dot(r, lane, sum);
#pragma unroll
      for (int j = 0; j < J; ++j) {
        const float total = sum_of_lanes(sum[j]);
        if (lane == 0 && r < plan.tile_rows && first + j < group.n && first_row + r < args.weight_rows)
          args.y[(group.first + first + j) * args.y_stride + first_row + r] = total;
      }
    }
  }

  __device__ void dot(std::uint32_t r, std::uint32_t lane, float (&sum)[J]) const {
    const GemvPlan& plan = args.plan;
    const auto* w = reinterpret_cast<const typename Element::Stored*>(shared + r * plan.w_stride +
                                                                      row_shift(first_row + r, plan.w_row_bytes));
    const auto* x = reinterpret_cast<const float*>(shared + plan.x_offset);
#pragma unroll 8
    for (std::uint32_t i = lane; i < args.cols; i += kLanes) {
      const float weight = Element::widen(w[i]);
#pragma unroll
      for (int j = 0; j < J; ++j) sum[j] = fused(weight, x[j * (plan.x_stride / sizeof(float)) + i], sum[j]);
    }
  }
};

template <class Element, int J>
__global__ void __launch_bounds__(kGemvThreads) gemv_floats(const GemvKernelArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  const GemvGroup group = group_of_block(args);
  if (group.n == 0) return;
  const std::uint32_t first_row = blockIdx.x << args.plan.log_tile_rows;
  stage_weights(args, group.w, first_row, shared);
  const FloatPass<Element, J> pass{args, group, first_row, shared};
  for (std::uint32_t first = 0; first < group.n; first += J) {
    if (first != 0) __syncthreads();  // the last pass still reads its rows
    pass.stage(first);
    if (first == 0) wait_for_copies();
    __syncthreads();
    pass.compute(first);
  }
}

template <class Element>
void launch_gemv_floats(const GemvKernelArgs& args, CUstream_st* stream) {
  switch (args.plan.pass_rows) {
    case 1:
      return launch_with_shared(gemv_floats<Element, 1>, args, stream);
    case 2:
      return launch_with_shared(gemv_floats<Element, 2>, args, stream);
    case 4:
      return launch_with_shared(gemv_floats<Element, 4>, args, stream);
    default:
      return launch_with_shared(gemv_floats<Element, 8>, args, stream);
  }
}

}  // namespace terrace::kernels::cuda
