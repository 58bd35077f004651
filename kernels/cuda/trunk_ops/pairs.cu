// A warp routes a row. Of few rows all lie in one thread block, which then sorts their pairs; more rows are sorted by a
// second launch.
#include "kernels/cuda/trunk_ops/pairs.cuh"

#include "kernels/cuda/device/overlap.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kRowsOfBlock = 4;  // of the launch over many rows
constexpr std::uint32_t kRowsAtOnce = 8;   // of the launch that sorts too
constexpr std::uint32_t kSortThreads = 1024;

__device__ __forceinline__ const float* logits_of(const ChooseArgs& args, std::uint32_t row) {
  return args.logits + std::size_t{row} * args.n_experts;
}

// Pairs by expert. How the pairs of an expert follow each other differs from run to run and changes no bit.
// shared: 2 * n_experts words.
__device__ void sort_pairs(const ChooseArgs& args, std::uint32_t* shared) {
  const std::uint32_t n_pairs = args.n_rows * args.top_k, n = args.n_experts;
  const std::uint32_t n_groups = min(n_pairs, n);
  std::uint32_t* counts = shared;
  std::uint32_t* next = shared + n;  // where an expert's next pair goes
  for (std::uint32_t i = threadIdx.x; i < n; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < n_pairs; i += blockDim.x) atomicAdd(counts + args.ids[i], 1u);
  __syncthreads();
  if (threadIdx.x < kWarp) {
    std::uint32_t first = 0, group = 0;  // before the 32 experts at hand
    for (std::uint32_t start = 0; start < n; start += kWarp) {
      const std::uint32_t expert = start + warp_lane(), count = expert < n ? counts[expert] : 0;
      std::uint32_t before = count;
#pragma unroll
      for (int apart = 1; apart < static_cast<int>(kWarp); apart *= 2) {
        const std::uint32_t other = __shfl_up_sync(~0u, before, apart);
        if (warp_lane() >= static_cast<std::uint32_t>(apart)) before += other;
      }
      const std::uint32_t used = __ballot_sync(~0u, count != 0);
      if (count != 0) {
        const std::uint32_t mine = group + __popc(used & ((1u << warp_lane()) - 1)), at = first + before - count;
        next[expert] = at;
        const CardSlab slab = args.slabs[expert];
        const std::uint32_t here = slab.gate != nullptr ? count : 0;
        args.gate_up[mine] = {slab.gate, at, here};
        args.gate_up[n_groups + mine] = {slab.up, n_pairs + at, here};
        args.down[mine] = {slab.down, at, here};
      }
      first += __shfl_sync(~0u, before, kWarp - 1);
      group += __popc(used);
    }
    for (std::uint32_t unused = group + warp_lane(); unused < n_groups; unused += kWarp)
      args.gate_up[unused] = args.gate_up[n_groups + unused] = args.down[unused] = {nullptr, 0, 0};
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < n_pairs; i += blockDim.x) {
    const std::uint32_t at = atomicAdd(next + args.ids[i], 1u);
    const bool is_here = args.slabs[args.ids[i]].gate != nullptr;
    args.x_rows[at] = args.x_rows[n_pairs + at] = is_here ? i / args.top_k : kPairElsewhere;
    args.slots[i] = is_here ? static_cast<std::int32_t>(at) : -1;
  }
}

__global__ void __launch_bounds__(kWarp* kRowsOfBlock) choose_kernel(const ChooseArgs args) {
  extern __shared__ float shared[];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t row = blockIdx.x * kRowsOfBlock + threadIdx.x / kWarp;
  if (row < args.n_rows)
    choose_row(args, logits_of(args, row), row, shared + threadIdx.x / kWarp * row_words(args.n_experts, args.top_k));
}

__global__ void __launch_bounds__(kSortThreads) sort_kernel(const ChooseArgs args) {
  extern __shared__ float shared[];
  let_next_begin();
  wait_for_previous();
  sort_pairs(args, reinterpret_cast<std::uint32_t*>(shared));
}

// One row: a warp. Its experts' places are brought before the kernels before this one have ended.
__global__ void __launch_bounds__(kWarp) choose_one_kernel(const ChooseArgs args) {
  extern __shared__ __align__(16) float shared[];
  let_next_begin();
  auto* const slabs = reinterpret_cast<CardSlab*>(shared);
  for (std::uint32_t i = threadIdx.x; i < args.n_experts; i += kWarp) slabs[i] = args.slabs[i];
  wait_for_previous();
  pairs_of_one_row(args, choose_row(args, args.logits, 0, reinterpret_cast<float*>(slabs + args.n_experts)), slabs);
}

// A few rows in one thread block: a warp to each.
__global__ void __launch_bounds__(kWarp* kRowsAtOnce) choose_and_sort_kernel(const ChooseArgs args) {
  extern __shared__ float shared[];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t row = threadIdx.x / kWarp;
  choose_row(args, logits_of(args, row), row, shared + row * row_words(args.n_experts, args.top_k));
  __syncthreads();
  sort_pairs(args, reinterpret_cast<std::uint32_t*>(shared));
}

}  // namespace

Status choose_experts(const Stream& stream, const ChooseArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {
      {"rows", args.n_rows}, {"experts", args.n_experts}, {"top-k", args.top_k}};
  if (args.n_rows == 0 || args.top_k == 0 || args.top_k > args.n_experts || args.n_experts > kMaxChosenExperts)
    return invalid_shape("choosing experts", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const bool overlap = overlaps_launches(stream.card());
  const std::uint32_t row_bytes = row_words(args.n_experts, args.top_k) * sizeof(float);
  const std::uint32_t one_bytes = row_bytes + args.n_experts * sizeof(CardSlab);
  if (args.slabs != nullptr && args.n_rows == 1 && one_bytes <= 48 * 1024) {
    launch_overlapped(overlap, choose_one_kernel, 1, kWarp, one_bytes, stream.native(), args);
    return after_launch(stream, "choosing experts", sizes);
  }
  if (args.slabs != nullptr && args.n_rows <= kRowsAtOnce && args.n_rows * row_bytes <= 48 * 1024) {
    launch_overlapped(overlap, choose_and_sort_kernel, 1, kWarp * args.n_rows, args.n_rows * row_bytes, stream.native(),
                      args);
    return after_launch(stream, "choosing experts", sizes);
  }
  launch_overlapped(overlap, choose_kernel, divide_up(args.n_rows, kRowsOfBlock), kWarp * kRowsOfBlock,
                    kRowsOfBlock * row_bytes, stream.native(), args);
  if (args.slabs != nullptr) launch_overlapped(overlap, sort_kernel, 1, kSortThreads, row_bytes, stream.native(), args);
  return after_launch(stream, "choosing experts", sizes);
}

}  // namespace terrace::kernels::cuda
