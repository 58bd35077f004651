// The GEMV of F32, F16 and BF16: in 16 lanes (docs/numerics.md 3.2), a thread to a lane of a weight row.
#pragma once

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

// This thread's lane of kOwn staged weight rows from r on, with J rows of x.
template <class Element, int J, int kOwn>
__device__ __forceinline__ void dot_lanes(const Tile& tile, std::uint32_t r, const std::uint8_t* x_rows,
                                          float (&sum)[kOwn][J]) {
  using Stored = typename Element::Stored;
  const std::uint32_t lane = threadIdx.x % kLanes;
  const int x_stride = static_cast<int>(tile.plan().x_stride / sizeof(float));
  const Stored* w[kOwn];
#pragma unroll
  for (int own = 0; own < kOwn; ++own)
    w[own] = reinterpret_cast<const Stored*>(tile.weight_row<sizeof(Stored)>(r + own)) + lane;
  const auto* x = reinterpret_cast<const float*>(x_rows) + lane;
  const int n = lane < tile.args.cols ? static_cast<int>((tile.args.cols - lane + kLanes - 1) / kLanes) : 0;
#pragma unroll(kOwn == 1 ? 8 : 2)
  for (int i = 0; i < n; ++i) {
    float value[J];
#pragma unroll
    for (int j = 0; j < J; ++j) value[j] = x[j * x_stride + i * kLanes];
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const float weight = Element::widen(w[own][i * kLanes]);
#pragma unroll
      for (int j = 0; j < J; ++j) sum[own][j] = fused(weight, value[j], sum[own][j]);
    }
  }
}

template <class Element, int J>
__global__ void __launch_bounds__(256) gemv_floats(const GemvKernelArgs args) {
  constexpr int kOwn = static_cast<int>(float_rows_of_thread(J));
  extern __shared__ __align__(16) std::uint8_t shared[];
  const GemvGroup group = group_of_block(args);
  if (group.n == 0) return;
  const Tile tile{args, group, blockIdx.x << args.plan.log_tile_rows, shared};
  tile.run([&](std::uint32_t first, std::uint32_t buffer) {
    for (std::uint32_t start = 0; start < args.plan.tile_rows; start += blockDim.x / kLanes * kOwn) {
      const std::uint32_t r = start + threadIdx.x / kLanes * kOwn;
      float sum[kOwn][J] = {};
      if (r < args.plan.tile_rows) dot_lanes<Element, J, kOwn>(tile, r, tile.x_buffer(buffer), sum);
#pragma unroll
      for (int own = 0; own < kOwn; ++own) {
        const std::uint32_t row = r + static_cast<std::uint32_t>(own);
        const bool mine =
            threadIdx.x % kLanes == 0 && row < args.plan.tile_rows && tile.first_row + row < args.weight_rows;
#pragma unroll
        for (int j = 0; j < J; ++j) {
          const float total = sum_of_lanes(sum[own][j]);
          if (mine && first + j < group.n) tile.write(first + j, row, total);
        }
      }
    }
  });
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
