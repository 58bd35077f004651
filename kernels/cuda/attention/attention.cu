// The launches of attention, and what makes results of the splits.
#include "kernels/cuda/attention/attention.h"

#include <algorithm>

#include "kernels/cuda/activations/quantize.cuh"
#include "kernels/cuda/attention/partials.cuh"
#include "kernels/cuda/attention/plan.h"
#include "kernels/cuda/device/overlap.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kMaxHeadValues = 1024;

// The result of (row, head), dimension d, from `n_splits` partials at most.
__device__ __forceinline__ float merged_partials(const AttentionArgs& args, std::uint32_t n_splits, std::uint32_t row,
                                                 std::uint32_t head, std::uint32_t d) {
  const std::uint32_t value_dim = args.cache.value_dim;
  constexpr auto kSplit = static_cast<std::uint32_t>(kSplitPositions);
  const std::uint32_t own_splits = min(n_splits, (args.n_keys[row] + kSplit - 1) / kSplit);
  const float* const first = partial(args, n_splits, row, head, 0);
  return merged(args, head, own_splits, [&](std::uint32_t split) {
    const float* const from = first + split * (value_dim + 2);
    return SplitResult{from[d], from[value_dim], from[value_dim + 1]};
  });
}

// Grid: (heads, rows); a thread to a dimension.
__global__ void merge_splits(const AttentionArgs args, std::uint32_t n_splits) {
  let_next_begin();
  wait_for_previous();
  const std::uint32_t head = blockIdx.x, row = blockIdx.y, value_dim = args.cache.value_dim;
  for (std::uint32_t d = threadIdx.x; d < value_dim; d += blockDim.x)
    args.out[row * args.out_stride + std::size_t{head} * value_dim + d] = merged_partials(args, n_splits, row, head, d);
}

constexpr std::uint32_t kMergedValues = 256;  // of a thread block: blocks of every class divide that

// Grid: (parts of kMergedValues values, rows).
__global__ void __launch_bounds__(kMergedValues)
    merge_to_rows(const AttentionArgs args, const AttentionRows rows, std::uint32_t n_splits) {
  __shared__ float values[kMergedValues];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t n = args.n_heads * args.cache.value_dim, row = blockIdx.y;
  const std::uint32_t first = blockIdx.x * kMergedValues, i = first + threadIdx.x;
  bool finite = true;
  if (i < n) {
    values[threadIdx.x] = merged_partials(args, n_splits, row, i / args.cache.value_dim, i % args.cache.value_dim);
    finite = is_finite(values[threadIdx.x]);
  }
  finite = __syncthreads_and(finite) != 0;
  if (!finite && threadIdx.x == 0) atomicMin(rows.failures + row, rows.code);
  write_card_values(rows.out.activation, values, first, min(kMergedValues, n - first),
                    rows.out.rows + row * rows.out.stride, n);
}

bool is_possible(const AttentionArgs& args) {
  const KvCache& cache = args.cache;
  return args.n_rows > 0 && args.n_rows <= kMaxGridRows && args.max_keys > 0 && cache.n_kv_heads > 0 &&
         args.n_heads > 0 && args.n_heads % cache.n_kv_heads == 0 && args.n_heads <= kMaxGridRows &&
         cache.head_dim > 0 && cache.head_dim <= kMaxHeadValues && cache.value_dim > 0 && cache.value_dim % 2 == 0 &&
         args.max_keys <= std::uint64_t{cache.table_stride} * kKvBlockPositions &&
         args.scratch_bytes >= attention_scratch_bytes(1, args.n_heads, cache.value_dim, args.max_keys);
}

// `merge` launches what makes results of the partials of the rows from `first` on.
template <class Merge>
Status attend_and_merge(const Stream& stream, const AttentionArgs& all, Merge merge) {
  const KvCache& cache = all.cache;
  const std::initializer_list<LaunchSize> sizes = {{"rows", all.n_rows},           {"heads", all.n_heads},
                                                   {"KV heads", cache.n_kv_heads}, {"head values", cache.head_dim},
                                                   {"V values", cache.value_dim},  {"keys at most", all.max_keys}};
  if (!is_possible(all)) return invalid_shape("attention", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const AttentionWay way = choose_way(stream.card(), all);
  for (std::uint32_t first = 0; first < all.n_rows; first += way.rows) {
    AttentionArgs args = all;
    args.n_rows = std::min(way.rows, all.n_rows - first);
    args.q += first * args.q_stride;
    args.streams += first;
    args.n_keys += first;
    if (args.out != nullptr) args.out += first * args.out_stride;
    if (way.prompt) {
      launch_prompt_splits(stream, args, way.whole);
    } else {
      launch_splits(stream, args);
    }
    merge(args, first, way.whole ? 1 : splits_of(args));
  }
  return after_launch(stream, "attention", sizes);
}

}  // namespace

Status attend(const Stream& stream, const AttentionArgs& args) {
  return attend_and_merge(stream, args, [&](const AttentionArgs& part, std::uint32_t, std::uint32_t n_splits) {
    launch_overlapped(overlaps_launches(stream.card()), merge_splits, dim3(part.n_heads, part.n_rows), 128, 0,
                      stream.native(), part, n_splits);
  });
}

Status attend(const Stream& stream, const AttentionArgs& args, const AttentionRows& rows) {
  return attend_and_merge(stream, args, [&](const AttentionArgs& part, std::uint32_t first, std::uint32_t n_splits) {
    AttentionRows out = rows;
    out.out.rows += first * out.out.stride;
    out.failures += first;
    const dim3 grid(divide_up(std::uint64_t{part.n_heads} * part.cache.value_dim, kMergedValues), part.n_rows);
    launch_overlapped(overlaps_launches(stream.card()), merge_to_rows, grid, kMergedValues, 0, stream.native(), part,
                      out, n_splits);
  });
}

}  // namespace terrace::kernels::cuda
