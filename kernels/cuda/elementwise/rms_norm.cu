// RMSNorm: the row lies in shared memory, sixteen threads hold the lanes of its sum of squares, all threads scale.
#include "kernels/cuda/lanes.cuh"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/elementwise/elementwise.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kMaxThreads = 512;

__global__ void rms_norm_kernel(const NormArgs args) {
  extern __shared__ float row[];
  __shared__ float r;
  const float* x = args.x + blockIdx.x * args.x_stride;
  for (std::uint32_t i = threadIdx.x; i < args.n; i += blockDim.x) row[i] = x[i];
  __syncthreads();
  if (threadIdx.x < 32) {
    float lane = 0.0f;
    const auto own = threadIdx.x;
    const int n = own < kLanes && own < args.n ? static_cast<int>((args.n - own + kLanes - 1) / kLanes) : 0;
#pragma unroll 16
    for (int i = 0; i < n; ++i) lane = fused(row[own + i * kLanes], row[own + i * kLanes], lane);
    const float sum = sum_of_lanes(lane);
    if (threadIdx.x == 0) r = 1.0f / sqrtf(sum / static_cast<float>(args.n) + args.eps);
  }
  __syncthreads();
  float* y = args.y + blockIdx.x * args.y_stride;
  for (std::uint32_t i = threadIdx.x; i < args.n; i += blockDim.x) y[i] = (row[i] * r) * args.w[i];
}

}  // namespace

Status rms_norm(const Stream& stream, const NormArgs& args) {
  if (args.n_rows == 0 || args.n == 0 || args.n > kMaxNormValues)
    return invalid_shape("RMSNorm", {{"rows", args.n_rows}, {"values", args.n}, {"at most", kMaxNormValues}});
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const std::uint32_t threads = args.n < kMaxThreads ? divide_up(args.n, 32) * 32 : kMaxThreads;
  rms_norm_kernel<<<args.n_rows, threads, args.n * sizeof(float), stream.native()>>>(args);
  return after_launch(stream, "RMSNorm", {{"rows", args.n_rows}, {"values", args.n}});
}

}  // namespace terrace::kernels::cuda
