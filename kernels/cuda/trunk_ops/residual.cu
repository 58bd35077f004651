// A thread block to a row, which lies in shared memory from the addition to the quantised forms.
#include "kernels/cuda/trunk_ops/residual.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kMaxThreads = 1024;
// The sum of squares is a warp's chain in which others wait: of many rows more lie on a multiprocessor at once.
constexpr std::uint32_t kManyRows = 512, kThreadsOfMany = 256;
constexpr std::uint32_t kOwnWeights = 2;  // of a thread, brought before the kernels before this one have ended

__global__ void __launch_bounds__(kMaxThreads) residual_kernel(const ResidualArgs args) {
  extern __shared__ float values[];
  __shared__ float shared_r;
  let_next_begin_unless_waiting(args);
  const NormWeights weights = bring_norm<kOwnWeights>(args, 0, args.n, blockDim.x);
  wait_for_previous();
  const std::uint32_t row = blockIdx.x, x_row = args.rows != nullptr ? args.rows[row] : row;
  float* x = args.x + std::size_t{x_row} * args.n;
  const bool adds = args.delta != nullptr || args.sums != nullptr || args.experts.out != nullptr;
  const ToFixed to_fixed(args.shift);
  bool finite = true, good = true;
  wait_for_sums(args);
  for (std::uint32_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    const float value = added(args, x[i], row, i, to_fixed, good);
    if (adds) x[i] = value;
    values[i] = value;
    finite = finite && is_finite(value);
  }
  good = __syncthreads_and(good) != 0;
  finite = __syncthreads_and(finite) != 0;
  if (!good) fail(args, x_row, args.experts_code);
  if (adds && !finite) fail(args, x_row, args.added_code);
  if (args.w == nullptr) return;

  norm_part(args, x_row, weights, values, 0, args.n, blockDim.x, &shared_r);
  if (args.h != nullptr)
    for (std::uint32_t i = threadIdx.x; i < args.n; i += blockDim.x) args.h[std::size_t{row} * args.n + i] = values[i];
#pragma unroll
  for (const CardRowsOut& out : args.out)
    if (out.rows != nullptr) write_card_values(out.activation, values, 0, args.n, out.rows + row * out.stride, args.n);
}

// The same by a cluster of thread blocks: each takes a part of the row, and all have the whole row for the norm's sum.
__global__ void TERRACE_CLUSTER __launch_bounds__(kClusterThreads) residual_cluster(const ResidualArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ float values[];
  __shared__ float shared_r;
  const auto cluster = cooperative_groups::this_cluster();
  const std::uint32_t part = args.n / kClusterBlocks, first = cluster.block_rank() * part;
  auto all_began = cluster.barrier_arrive();
  let_next_begin_unless_waiting(args);
  const NormWeights weights = bring_norm<kOwnWeights>(args, first, part, kClusterThreads);
  wait_for_previous();
  const std::uint32_t row = blockIdx.x / kClusterBlocks, x_row = args.rows != nullptr ? args.rows[row] : row;
  cluster.barrier_wait(std::move(all_began));  // nobody's shared memory is written before its thread block runs
  add_in_cluster(args, row, x_row, values);
  if (args.w == nullptr) return;
  norm_part(args, x_row, weights, values, first, part, kClusterThreads, &shared_r);
  write_part(args, row, values);
#endif
}

}  // namespace

Status residual(const Stream& stream, const ResidualArgs& args) {
  if (args.n_rows == 0 || args.n == 0 || args.n > kMaxResidualValues)
    return invalid_shape("the residual's step", {{"rows", args.n_rows}, {"values", args.n}});
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const bool overlap = overlaps_launches(stream.card());
  if (goes_in_clusters(stream, args)) {
    launch_overlapped(overlap, residual_cluster, args.n_rows * kClusterBlocks, kClusterThreads, args.n * sizeof(float),
                      stream.native(), args);
    return after_launch(stream, "the residual's step", {{"rows", args.n_rows}, {"values", args.n}});
  }
  const std::uint32_t most = args.n_rows < kManyRows ? kMaxThreads : kThreadsOfMany;
  const std::uint32_t threads = args.n < most ? divide_up(args.n, 32) * 32 : most;
  launch_overlapped(overlap, residual_kernel, args.n_rows, threads, args.n * sizeof(float), stream.native(), args);
  return after_launch(stream, "the residual's step", {{"rows", args.n_rows}, {"values", args.n}});
}

}  // namespace terrace::kernels::cuda
