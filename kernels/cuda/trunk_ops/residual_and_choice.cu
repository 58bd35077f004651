// From the residual to the pairs of one row in one launch, by a cluster of thread blocks: each has a part of the
// router, brought before the kernels before this one have ended, and the whole normed row.
#include "kernels/cuda/expert_gemv/stage.cuh"
#include "kernels/cuda/trunk_ops/pairs.cuh"
#include "kernels/cuda/trunk_ops/residual.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kOwnWeights = 8;    // of a thread, of the norm
constexpr std::uint32_t kStaticBytes = 16;  // of shared memory, beside Layout: shared_r

// Shared memory of a thread block, offsets in bytes. The router's rows lie 64 bytes behind a multiple of 128 apart: the
// two rows of a warp are then read from different banks.
struct Layout {
  std::uint32_t values, row_stride, logits, choice, slabs, barrier, total;
};
__host__ __device__ Layout lay_out(std::uint32_t n, std::uint32_t n_experts, std::uint32_t top_k) {
  Layout at{};
  at.row_stride = n * 4 + 64;
  at.values = n_experts / kClusterBlocks * at.row_stride;
  at.logits = at.values + n * 4;
  at.choice = at.logits + n_experts * 4;
  at.slabs = at.choice + round_up_to_16(row_words(n_experts, top_k) * 4);
  at.barrier = at.slabs + round_up_to_16(n_experts * sizeof(CardSlab));
  at.total = at.barrier + 16;
  return at;
}

#if __CUDA_ARCH__ >= 900
// Row r of this thread block's part of the router times the row, in 16 lanes; in lane 0.
__device__ __forceinline__ float dot(const float* w, const float* values, std::uint32_t n) {
  const std::uint32_t lane = threadIdx.x % kLanes;
  float sum = 0.0f;
#pragma unroll 16
  for (std::uint32_t i = lane; i < n; i += kLanes) sum = fused(w[i], values[i], sum);
  return sum_of_lanes(sum);
}
#endif

// Grid: one cluster.
__global__ void TERRACE_CLUSTER __launch_bounds__(kClusterThreads)
    residual_and_choice_kernel(const ResidualAndChoiceArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) std::uint8_t shared[];
  __shared__ float shared_r;
  const ResidualArgs& residual = args.residual;
  const std::uint32_t n = residual.n, n_experts = args.choice.n_experts, own_rows = n_experts / kClusterBlocks;
  const Layout at = lay_out(n, n_experts, args.choice.top_k);
  auto* const values = reinterpret_cast<float*>(shared + at.values);
  auto* const logits = reinterpret_cast<float*>(shared + at.logits);
  auto* const slabs = reinterpret_cast<CardSlab*>(shared + at.slabs);
  const auto cluster = cooperative_groups::this_cluster();
  const std::uint32_t rank = cluster.block_rank();
  auto all_began = cluster.barrier_arrive();
  let_next_begin();
  Copies copies(shared + at.barrier);
  for (std::uint32_t first = 0; first < own_rows; first += 32)
    copies.rows(
        min(32u, own_rows - first), [&](std::uint32_t r) { return shared + (first + r) * at.row_stride; },
        [&](std::uint32_t r) {
          return reinterpret_cast<const std::byte*>(args.router + std::size_t{rank * own_rows + first + r} * n);
        },
        [&](std::uint32_t) { return n * 4; });
  copies.started();
  const NormWeights weights = bring_norm<kOwnWeights>(residual, 0, n, kClusterThreads);
  if (rank == 0 && args.choice.slabs != nullptr)
    for (std::uint32_t i = threadIdx.x; i < n_experts; i += kClusterThreads) slabs[i] = args.choice.slabs[i];
  wait_for_previous();
  cluster.barrier_wait(std::move(all_began));  // nobody's shared memory is written before its thread block runs
  add_in_cluster(residual, 0, 0, values);
  norm_part(residual, 0, weights, values, 0, n, kClusterThreads, &shared_r);
  copies.wait();
  __syncthreads();
  float* const all_logits = cluster.map_shared_rank(logits, 0);
  for (std::uint32_t start = 0; start < own_rows; start += kClusterThreads / kLanes) {
    const std::uint32_t r = start + threadIdx.x / kLanes;
    const float logit = dot(reinterpret_cast<const float*>(shared + min(r, own_rows - 1) * at.row_stride), values, n);
    if (threadIdx.x % kLanes == 0 && r < own_rows) all_logits[rank * own_rows + r] = logit;
  }
  auto all_have_logits = cluster.barrier_arrive();
  write_part(residual, 0, values);
  cluster.barrier_wait(std::move(all_have_logits));
  if (rank != 0 || threadIdx.x >= kWarp) return;
  const std::uint16_t* const ids = choose_row(args.choice, logits, 0, reinterpret_cast<float*>(shared + at.choice));
  if (args.choice.slabs != nullptr) pairs_of_one_row(args.choice, ids, slabs);
#endif
}

}  // namespace

bool has_residual_and_choice(const Stream& stream, const ResidualAndChoiceArgs& args) {
  const ResidualArgs& residual = args.residual;
  const ChooseArgs& choice = args.choice;
  return residual.n_rows == 1 && choice.n_rows == 1 && residual.rows == nullptr && residual.w != nullptr &&
         goes_in_clusters(stream, residual) && choice.n_experts % kClusterBlocks == 0 &&
         choice.n_experts <= kMaxChosenExperts && choice.top_k > 0 && choice.top_k <= choice.n_experts &&
         lay_out(residual.n, choice.n_experts, choice.top_k).total + kStaticBytes <=
             stream.card().shared_bytes_per_block;
}

Status residual_and_choice(const Stream& stream, const ResidualAndChoiceArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {
      {"values", args.residual.n}, {"experts", args.choice.n_experts}, {"top-k", args.choice.top_k}};
  if (!has_residual_and_choice(stream, args)) return invalid_shape("the residual's step with a choice", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const std::uint32_t bytes = lay_out(args.residual.n, args.choice.n_experts, args.choice.top_k).total;
  cudaFuncSetAttribute(residual_and_choice_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  launch_overlapped(true, residual_and_choice_kernel, kClusterBlocks, kClusterThreads, bytes, stream.native(), args);
  return after_launch(stream, "the residual's step with a choice", sizes);
}

}  // namespace terrace::kernels::cuda
