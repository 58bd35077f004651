// 256 values of a pair to a thread block, or of many pairs to a warp: blocks of every class divide that.
#include "kernels/cuda/activations/quantize.cuh"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kManyPairs = 256;

__device__ __forceinline__ float between(float gate, float up) { return silu_exact(gate) * up; }

// Grid: (parts of kThreads values, pairs).
__global__ void __launch_bounds__(kThreads) expert_rows_kernel(const ExpertRowsArgs args) {
  __shared__ float values[kThreads];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t first = blockIdx.x * kThreads, i = first + threadIdx.x, pair = blockIdx.y;
  const std::uint32_t row = args.x_rows[pair];
  if (row == kPairElsewhere) return;
  bool finite = true;
  if (i < args.n) {
    const std::size_t at = std::size_t{pair} * args.n + i;
    values[threadIdx.x] = between(args.gate[at], args.up[at]);
    finite = is_finite(values[threadIdx.x]);
  }
  finite = __syncthreads_and(finite) != 0;
  if (!finite && threadIdx.x == 0) atomicMin(args.failures + row, args.code);
  write_card_values(args.out.activation, values, first, min(kThreads, args.n - first),
                    args.out.rows + pair * args.out.stride, args.n);
}

// Many pairs, blocks of 256 values: a warp to a block, so that nobody waits for the one that quantises. A lane has the
// words of four values that it quantises.
__global__ void __launch_bounds__(kThreads) many_expert_rows_kernel(const ExpertRowsArgs args) {
  using S = BlockLanes<256>;
  __shared__ __align__(16) float values[kThreads / 32][S::kValues];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t lane = threadIdx.x % 32, n_blocks = args.n / S::kValues;
  const std::uint32_t number = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  const std::uint32_t pair = number / n_blocks, block = number % n_blocks;
  if (pair >= args.n_pairs) return;
  const std::uint32_t row = args.x_rows[pair];
  if (row == kPairElsewhere) return;
  const std::size_t at = std::size_t{pair} * args.n + block * S::kValues;
  float* const own = values[threadIdx.x / 32];
  bool finite = true;
#pragma unroll
  for (std::uint32_t i = 4 * lane; i < S::kValues; i += 4 * S::kLanesOfBlock) {
    const float4 gate = *reinterpret_cast<const float4*>(args.gate + at + i);
    const float4 up = *reinterpret_cast<const float4*>(args.up + at + i);
    const float4 value =
        make_float4(between(gate.x, up.x), between(gate.y, up.y), between(gate.z, up.z), between(gate.w, up.w));
    finite = finite && is_finite(value.x) && is_finite(value.y) && is_finite(value.z) && is_finite(value.w);
    *reinterpret_cast<float4*>(own + i) = value;
  }
  if (!__all_sync(~0u, finite) && lane == 0) atomicMin(args.failures + row, args.code);
  write_card<S>(quantize<S>(own, lane, true), args.out.rows + pair * args.out.stride, args.n, block, lane, true);
}

}  // namespace

Status expert_rows(const Stream& stream, const ExpertRowsArgs& args) {
  if (args.n_pairs == 0 || args.n_pairs > kMaxGridRows || args.n == 0 ||
      args.n % block_values(args.out.activation) != 0)
    return invalid_shape("rows between experts", {{"pairs", args.n_pairs}, {"values", args.n}});
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const bool overlap = overlaps_launches(stream.card());
  if (args.out.activation == ActivationClass::kA8x256 && args.n_pairs >= kManyPairs) {
    const std::uint64_t blocks = std::uint64_t{args.n_pairs} * (args.n / 256);
    launch_overlapped(overlap, many_expert_rows_kernel, divide_up(blocks, kThreads / 32), kThreads, 0, stream.native(),
                      args);
  } else {
    launch_overlapped(overlap, expert_rows_kernel, dim3(divide_up(args.n, kThreads), args.n_pairs), kThreads, 0,
                      stream.native(), args);
  }
  return after_launch(stream, "rows between experts", {{"pairs", args.n_pairs}, {"values", args.n}});
}

}  // namespace terrace::kernels::cuda
