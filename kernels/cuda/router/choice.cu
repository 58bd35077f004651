// A warp to a row: with a few hundred experts one warp's shuffles are quicker than a block's barriers.
#include "kernels/cuda/router/choice.cuh"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/router/router.h"

namespace terrace::kernels::cuda {
namespace {

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

__global__ void route_kernel(const KernelArgs args) {
  extern __shared__ float shared[];
  const std::uint32_t n = args.n_experts;
  float* p = shared;
  float* keys = shared + n;
  const float* logits = args.logits + std::size_t{blockIdx.x} * n;
  if (args.softmax) {
    warp_softmax(logits, n, p);
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
