// Many rows of x and F32, F16, BF16: in 16 lanes (docs/numerics.md 3.2), a thread to a lane of 8 weight rows and 8 rows
// of x, so that each value read from shared memory serves eight chains. A thread block takes 32 of both and goes along
// their columns; the next ones are on their way in registers while some are used.
#pragma once

#include "kernels/cuda/expert_gemv/float_kernel.cuh"
#include "kernels/cuda/expert_gemv/gemm_plan.h"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kFloatGemmThreads = 256, kFloatGemmColumns = 64;  // columns at a time
inline constexpr int kOwnRows = 8;                                               // of a thread, of both

template <class Element>
struct FloatGemm {
  using Stored = typename Element::Stored;
  // Rows of a warp's halves lie in other banks: 8 * kStride = 16 mod 32.
  static constexpr std::uint32_t kRows = kFloatGemmRows, kStride = kFloatGemmColumns + 2;
  static constexpr std::uint32_t kLoads = kRows * kFloatGemmColumns / kFloatGemmThreads;  // of a thread, of both
  struct Shared {
    float x[kRows * kStride], w[kRows * kStride];
    std::uint32_t x_rows[kRows];
  };
  struct Next {
    float x[kLoads];
    Stored w[kLoads];
  };

  const GemvKernelArgs& args;
  const GemvGroup& group;
  std::uint32_t first_row;
  Shared& s;

  static __device__ __forceinline__ std::uint32_t row_of_load(std::uint32_t j) {
    return (threadIdx.x + j * kFloatGemmThreads) / kFloatGemmColumns;
  }
  static __device__ __forceinline__ std::uint32_t column_of_load() { return threadIdx.x % kFloatGemmColumns; }

  // Columns from `begin` on; what lies behind a row's last is 0 and not used.
  __device__ __forceinline__ void fetch(std::uint32_t begin, Next& next) const {
    const std::uint32_t column = begin + column_of_load();
    const bool there = column < args.cols;
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t r = row_of_load(j), row = min(first_row + r, args.weight_rows - 1);
      const auto* const w = reinterpret_cast<const Stored*>(group.w) + std::uint64_t{row} * args.cols;
      const auto* const x = reinterpret_cast<const float*>(args.x + s.x_rows[r] * args.x_stride);
      next.w[j] = there ? w[column] : Stored{};
      next.x[j] = there ? x[column] : 0.0f;
    }
  }
  __device__ __forceinline__ void put(const Next& next) const {
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      s.w[row_of_load(j) * kStride + column_of_load()] = Element::widen(next.w[j]);
      s.x[row_of_load(j) * kStride + column_of_load()] = next.x[j];
    }
  }

  // Of the sixteen threads with this one: eight weight rows, which a warp's halves share, and eight rows of x.
  static __device__ __forceinline__ std::uint32_t own_w() { return threadIdx.x / 64 * kOwnRows; }
  static __device__ __forceinline__ std::uint32_t own_x() { return threadIdx.x / kLanes % 4 * kOwnRows; }

  __device__ __forceinline__ void add_lane(std::uint32_t i, float (&sums)[kOwnRows][kOwnRows]) const {
    const std::uint32_t at = i * kLanes + threadIdx.x % kLanes;
    float x[kOwnRows];
#pragma unroll
    for (int j = 0; j < kOwnRows; ++j) x[j] = s.x[(own_x() + j) * kStride + at];
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const float w = s.w[(own_w() + r) * kStride + at];
#pragma unroll
      for (int j = 0; j < kOwnRows; ++j) sums[r][j] = fused(w, x[j], sums[r][j]);
    }
  }

  __device__ __forceinline__ void write(std::uint32_t first, const float (&sums)[kOwnRows][kOwnRows]) const {
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r)
#pragma unroll
      for (int j = 0; j < kOwnRows; ++j) {
        const float total = sum_of_lanes(sums[r][j]);
        const std::uint32_t row = first_row + own_w() + r, column = first + own_x() + j;
        if (threadIdx.x % kLanes == 0 && row < args.weight_rows && column < group.n)
          args.y[(group.first + column) * args.y_stride + row] = total;
      }
  }

  // Rows of x first .. first + kRows - 1 of the group, as far as there are.
  __device__ __forceinline__ void run(std::uint32_t first) const {
    if (threadIdx.x < kRows) {
      const std::uint32_t index = group.first + min(first + threadIdx.x, group.n - 1);
      s.x_rows[threadIdx.x] = args.x_rows != nullptr ? args.x_rows[index] : index;
    }
    __syncthreads();
    Next next;
    fetch(0, next);
    float sums[kOwnRows][kOwnRows] = {};
    for (std::uint32_t begin = 0; begin < args.cols; begin += kFloatGemmColumns) {
      put(next);
      __syncthreads();
      if (begin + kFloatGemmColumns < args.cols) fetch(begin + kFloatGemmColumns, next);
#pragma unroll
      for (std::uint32_t i = 0; i < kFloatGemmColumns / kLanes; ++i)
        if (begin + i * kLanes + threadIdx.x % kLanes < args.cols) add_lane(i, sums);
      __syncthreads();
    }
    write(first, sums);
  }
};

// Grid: (tiles of a matrix, groups, slices).
template <class Element>
__global__ void __launch_bounds__(kFloatGemmThreads, 2) gemm_floats(const GemvKernelArgs args) {
  __shared__ typename FloatGemm<Element>::Shared shared;
  const GemvGroup group = group_of_block(args);
  if (args.groups == nullptr) wait_for_previous();
  const FloatGemm<Element> tile{args, group, blockIdx.x * kFloatGemmRows, shared};
  for (std::uint32_t first = blockIdx.z * kFloatGemmRows; first < group.n; first += gridDim.z * kFloatGemmRows)
    tile.run(first);
}

template <class Element>
void launch_floats(const GemvKernelArgs& args, CUstream_st* stream) {
  if (args.gemm.columns == 0) return launch_gemv_floats<Element>(args, stream);
  launch_overlapped(args.overlap, gemm_floats<Element>, dim3(args.gemm.tiles, args.n_groups, args.gemm.slices),
                    kFloatGemmThreads, 0, stream, args);
}

}  // namespace terrace::kernels::cuda
