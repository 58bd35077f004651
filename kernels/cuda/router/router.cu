// A warp to a row: with a few hundred experts one warp's shuffles are quicker than a block's barriers.
#include "kernels/cuda/router/router.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kWarp = 32;

// RouterRule without its optional.
struct KernelArgs {
  const float* logits;
  const float* bias;
  std::uint16_t* ids;
  float* weights;
  std::uint32_t n_experts, top_k;
  bool softmax, clamp_sum, scaled;
  float scale;
};

__device__ float warp_max(float x) {
#pragma unroll
  for (int apart = 1; apart < static_cast<int>(kWarp); apart *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, apart));
  return x;
}

__device__ void softmax(const float* logits, std::uint32_t n, float* p) {
  float max = logits[0];
  for (std::uint32_t i = threadIdx.x; i < n; i += kWarp) max = fmaxf(max, logits[i]);
  max = warp_max(max);
  for (std::uint32_t i = threadIdx.x; i < n; i += kWarp) p[i] = exp_exact(logits[i] - max);
  __syncwarp();
  float lane = 0.0f;
  if (threadIdx.x < kLanes)
    for (std::uint32_t i = threadIdx.x; i < n; i += kLanes) lane = lane + p[i];
  const float sum = __shfl_sync(~0u, sum_of_lanes(lane), 0);
  for (std::uint32_t i = threadIdx.x; i < n; i += kWarp) p[i] = p[i] / sum;
}

struct Choice {
  float key;
  std::uint32_t id;  // n_experts: none
};

// The largest key, of equal keys the lowest id, among those that come behind `last` in that order.
__device__ Choice next_choice(const float* keys, std::uint32_t n, Choice last, bool first) {
  Choice best{0.0f, n};
  for (std::uint32_t i = threadIdx.x; i < n; i += kWarp) {
    const float key = keys[i];
    const bool behind = first || key < last.key || (key == last.key && i > last.id);
    if (behind && (best.id == n || key > best.key)) best = {key, i};
  }
#pragma unroll
  for (int apart = 1; apart < static_cast<int>(kWarp); apart *= 2) {
    const Choice other{__shfl_xor_sync(~0u, best.key, apart), __shfl_xor_sync(~0u, best.id, apart)};
    const bool better =
        other.id != n && (best.id == n || other.key > best.key || (other.key == best.key && other.id < best.id));
    if (better) best = other;
  }
  return best;
}

__global__ void route_kernel(const KernelArgs args) {
  extern __shared__ float shared[];
  const std::uint32_t n = args.n_experts;
  float* p = shared;
  float* keys = shared + n;
  const float* logits = args.logits + std::size_t{blockIdx.x} * n;
  if (args.softmax) {
    softmax(logits, n, p);
  } else {
    for (std::uint32_t i = threadIdx.x; i < n; i += kWarp) p[i] = sigmoid_exact(logits[i]);
  }
  for (std::uint32_t i = threadIdx.x; i < n; i += kWarp)
    keys[i] = args.bias != nullptr ? p[i] + args.bias[i] : args.softmax ? logits[i] : p[i];
  __syncwarp();
  std::uint16_t* ids = args.ids + std::size_t{blockIdx.x} * args.top_k;
  float* weights = args.weights + std::size_t{blockIdx.x} * args.top_k;
  Choice last{0.0f, 0};
  float sum = 0.0f;
  for (std::uint32_t k = 0; k < args.top_k; ++k) {
    last = next_choice(keys, n, last, k == 0);
    if (last.id == n) last.id = 0;  // NaN keys: the logits were not finite, which is told elsewhere
    sum = sum + p[last.id];
    if (threadIdx.x == 0) ids[k] = static_cast<std::uint16_t>(last.id);
  }
  __syncwarp();
  if (args.clamp_sum) sum = fmaxf(sum, 0x1p-14f);
  for (std::uint32_t k = threadIdx.x; k < args.top_k; k += kWarp) {
    const float weight = p[ids[k]] / sum;
    weights[k] = args.scaled ? weight * args.scale : weight;
  }
}

}  // namespace

Status route(const Stream& stream, const RouteArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {
      {"rows", args.n_rows}, {"experts", args.n_experts}, {"top-k", args.rule.top_k}};
  if (args.n_rows == 0 || args.rule.top_k == 0 || args.rule.top_k > args.n_experts ||
      args.n_experts > kMaxRoutedExperts)
    return invalid_shape("the router", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const KernelArgs kernel{args.logits,
                          args.rule.selection_bias,
                          args.ids,
                          args.weights,
                          args.n_experts,
                          static_cast<std::uint32_t>(args.rule.top_k),
                          args.rule.kind == RouterKind::kSoftmax,
                          args.rule.clamp_sum,
                          args.rule.scale.has_value(),
                          args.rule.scale.value_or(1.0f)};
  route_kernel<<<args.n_rows, kWarp, 2 * args.n_experts * sizeof(float), stream.native()>>>(kernel);
  return after_launch(stream, "the router", sizes);
}

}  // namespace terrace::kernels::cuda
