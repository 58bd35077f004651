#include "tests/gpu/limits.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/expert_gemv/wgmma.cuh"

namespace terrace::test {
namespace {

using namespace kernels::cuda;

constexpr std::uint32_t kBlocksOfMultiprocessor = 2, kThreads = 512;
constexpr int kChains = 8, kSteps = 4096;     // of a thread of the f32 kernel
constexpr int kProducts = 4, kRounds = 4096;  // of a warp of the int8 kernel: kProducts results at once
constexpr std::uint32_t kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) f32_limit(float* sink) {
  float sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  const float factor = 1.0f + 1e-6f * static_cast<float>(blockIdx.x), addend = 0.5f;
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = __fmaf_rn(sums[i], factor, addend);
  float total = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) total += sums[i];
  if (total == -1.0f) *sink = total;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Four warps: 64 x 32 x 32 multiply-adds a product.
__device__ std::int32_t multiply_int8() {
  __shared__ __align__(128) std::uint8_t x[Wgmma::kColumns * 32];
  for (std::uint32_t i = threadIdx.x; i < sizeof x; i += blockDim.x) x[i] = static_cast<std::uint8_t>(i);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
  const std::uint64_t descriptor = Wgmma::descriptor(at, 128, 256);
  const std::uint32_t w[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  std::int32_t c[kProducts][16] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) Wgmma::keep_order(c[i]);
    Wgmma::start();
#pragma unroll
    for (int i = 0; i < kProducts; ++i) Wgmma::multiply<true>(c[i], w, descriptor, true);
    Wgmma::commit();
    Wgmma::wait<0>();
#pragma unroll
    for (int i = 0; i < kProducts; ++i) Wgmma::keep_order(c[i]);
  }
  std::int32_t total = 0;
#pragma unroll
  for (int i = 0; i < kProducts; ++i)
#pragma unroll
    for (int j = 0; j < 16; ++j) total ^= c[i][j];
  return total;
}
#else
// A warp: 16 x 8 x 32.
__device__ std::int32_t multiply_int8() {
  const std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  const std::uint32_t b[2] = {threadIdx.x * 3, threadIdx.x * 5};
  std::int32_t c[kProducts][4] = {};
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int i = 0; i < kProducts; ++i)
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
          "%3};"
          : "+r"(c[i][0]), "+r"(c[i][1]), "+r"(c[i][2]), "+r"(c[i][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  std::int32_t total = 0;
#pragma unroll
  for (int i = 0; i < kProducts; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) total ^= c[i][j];
  return total;
}
#endif

__global__ void __launch_bounds__(kThreads) int8_limit(std::int32_t* sink) {
  const std::int32_t total = multiply_int8();
  if (total == 0x7fffffff) *sink = total;
}

__global__ void nothing() { let_next_begin(); }

std::uint32_t blocks(const Stream& stream) { return kBlocksOfMultiprocessor * stream.card().multiprocessors; }

}  // namespace

Result<double> launch_f32_limit(const Stream& stream, float* sink) {
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  f32_limit<<<blocks(stream), kThreads, 0, stream.native()>>>(sink);
  TERRACE_RETURN_IF_ERROR(after_launch(stream, "the f32 limit", {}));
  return double{kChains} * kSteps * kThreads * blocks(stream);
}

Result<double> launch_int8_limit(const Stream& stream, std::int32_t* sink) {
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  int8_limit<<<blocks(stream), kThreads, 0, stream.native()>>>(sink);
  TERRACE_RETURN_IF_ERROR(after_launch(stream, "the int8 limit", {}));
  const bool wgmma = stream.card().compute_major == 9 && stream.card().compute_minor == 0;
  const double of_a_warp = wgmma ? 16.0 * 32 * 32 : 16.0 * 8 * 32;
  return of_a_warp * kProducts * kRounds * kWarps * blocks(stream);
}

Status launch_nothing(const Stream& stream) {
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  launch_overlapped(stream.card().compute_major >= kOverlapFrom, nothing, 1, 32, 0, stream.native());
  return after_launch(stream, "nothing", {});
}

}  // namespace terrace::test
