// Logit and id become one integer whose order is the rule's, so that blocks may meet by atomicMax in any order.
#include "kernels/cuda/greedy/greedy.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kValuesPerBlock = 4096;
constexpr std::uint64_t kNotFiniteKey = ~std::uint64_t{0};

// Larger logit, then lower id: -0 counts as +0. No finite logit gives kNotFiniteKey.
__device__ std::uint64_t key_of(float logit, std::uint32_t id) {
  if (!is_finite(logit)) return kNotFiniteKey;
  const std::uint32_t bits = __float_as_uint(logit + 0.0f);
  const std::uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::uint64_t{rising} << 32 | (0xffffffffu - id);
}

__global__ void best_of_part(const GreedyArgs args) {
  const float* logits = args.logits + blockIdx.y * args.stride;
  const std::uint32_t end = min(args.n, (blockIdx.x + 1) * kValuesPerBlock);
  std::uint64_t best = 0;  // less than any logit's
  for (std::uint32_t i = blockIdx.x * kValuesPerBlock + threadIdx.x; i < end; i += kThreads)
    best = max(best, key_of(logits[i], i));
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) best = max(best, __shfl_xor_sync(~0u, best, apart));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned long long*>(args.best + blockIdx.y), best);
}

__global__ void token_of_best(const GreedyArgs args) {
  const std::uint32_t row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= args.n_rows) return;
  const std::uint64_t best = args.best[row];
  args.tokens[row] = best == kNotFiniteKey ? kNotFiniteToken : 0xffffffffu - static_cast<std::uint32_t>(best);
}

}  // namespace

Status greedy_tokens(const Stream& stream, const GreedyArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows}, {"logits", args.n}};
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.n == 0 || args.n > 0x7fffffff)
    return invalid_shape("the greedy token", sizes);
  TERRACE_RETURN_IF_ERROR(stream.fill(args.best, 0, args.n_rows * sizeof(std::uint64_t)));
  best_of_part<<<dim3(divide_up(args.n, kValuesPerBlock), args.n_rows), kThreads, 0, stream.native()>>>(args);
  token_of_best<<<divide_up(args.n_rows, kThreads), kThreads, 0, stream.native()>>>(args);
  return after_launch(stream, "the greedy token", sizes);
}

}  // namespace terrace::kernels::cuda
