// One thread block: what goes over is a few rows, and the flag must follow all of it.
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 512;

__global__ void __launch_bounds__(kThreads) hand_over_kernel(const HandOverArgs args) {
  let_next_begin();
  wait_for_previous();
  const auto* const from = reinterpret_cast<const float4*>(args.rows);
  auto* const to = reinterpret_cast<float4*>(args.host_rows);
  for (std::uint32_t i = threadIdx.x; i < args.n_values / 4; i += kThreads) to[i] = from[i];
  for (std::uint32_t i = threadIdx.x; i < args.n_choices; i += kThreads) {
    args.host_ids[i] = args.ids[i];
    args.host_weights[i] = args.weights[i];
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(args.flag.word), "r"(*args.flag.step) : "memory");
}

}  // namespace

Status hand_over(const Stream& stream, const HandOverArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"values", args.n_values}, {"choices", args.n_choices}};
  if (args.n_values == 0 || args.n_values % 4 != 0 || args.flag.word == nullptr)
    return invalid_shape("handing rows over", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  launch_overlapped(overlaps_launches(stream.card()), hand_over_kernel, 1, kThreads, 0, stream.native(), args);
  return after_launch(stream, "handing rows over", sizes);
}

}  // namespace terrace::kernels::cuda
