#include "kernels/cuda/greedy/greedy.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kValuesPerBlock = 4096;
constexpr GreedyKey kNotFinite = 0;

// Larger logit, then lower id: -0 counts as +0. No finite logit gives kNotFinite.
__device__ GreedyKey key_of(float logit, std::uint32_t id) {
  if (!is_finite(logit)) return kNotFinite;
  const std::uint32_t bits = __float_as_uint(logit + 0.0f);
  const std::uint32_t falling = bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
  return GreedyKey{falling} << 32 | id;
}

__global__ void __launch_bounds__(kThreads) best_of_part(const GreedyArgs args) {
  let_next_begin();
  wait_for_previous();
  const std::uint32_t row = blockIdx.y, end = min(args.n, (blockIdx.x + 1) * kValuesPerBlock);
  const float* logits = args.logits + row * args.stride;
  GreedyKey best = kNoLogitSeen;
  for (std::uint32_t i = blockIdx.x * kValuesPerBlock + threadIdx.x; i < end; i += kThreads)
    best = min(best, key_of(logits[i], i));
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) best = min(best, __shfl_xor_sync(~0u, best, apart));
  if (threadIdx.x % 32 != 0) return;
  atomicMin(reinterpret_cast<unsigned long long*>(args.best + row), best);
  if (best == kNotFinite && args.failures != nullptr)
    atomicMin(args.failures + (args.rows != nullptr ? args.rows[row] : row), args.code);
}

}  // namespace

Status find_greedy(const Stream& stream, const GreedyArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows}, {"logits", args.n}};
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.n == 0 || args.n > 0x7fffffff)
    return invalid_shape("the greedy token", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  launch_overlapped(overlaps_launches(stream.card()), best_of_part,
                    dim3(divide_up(args.n, kValuesPerBlock), args.n_rows), kThreads, 0, stream.native(), args);
  return after_launch(stream, "the greedy token", sizes);
}

}  // namespace terrace::kernels::cuda
