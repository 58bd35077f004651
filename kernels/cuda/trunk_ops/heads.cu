// A warp to a head, four heads to a thread block; the head lies in shared memory.
#include "kernels/cuda/trunk_ops/heads.cuh"

#include "kernels/cuda/device/overlap.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kHeadsOfBlock = 4;

// Grid: (fours of all heads: q, k, v, rows).
__global__ void __launch_bounds__(kHeadLanes* kHeadsOfBlock) finish_heads_kernel(const HeadsArgs args) {
  extern __shared__ float shared[];
  let_next_begin();
  const std::uint32_t row = blockIdx.y, n_kv = args.cache.n_kv_heads;
  const std::uint32_t key_dim = args.cache.head_dim, value_dim = args.cache.value_dim;
  std::uint32_t number = blockIdx.x * kHeadsOfBlock + threadIdx.x / kHeadLanes;
  float* values = shared + threadIdx.x / kHeadLanes * max(key_dim, value_dim);
  const HeadWeights own = bring_head_weights(number < args.n_heads ? args.q_norm : args.k_norm, key_dim);
  wait_for_previous();
  if (number < args.n_heads) {
    make_query(args, {values, key_dim}, own, turn_of(args, row), row, number);
    float* const q = args.q + (std::size_t{row} * args.n_heads + number) * key_dim;
    for (std::uint32_t d = head_lane(); d < key_dim; d += kHeadLanes) q[d] = values[d];
    return;
  }
  number -= args.n_heads;
  if (number >= 2 * n_kv) return;
  const KvPlace place = kv_place(args.cache, args.streams[row], args.positions[row], number % n_kv);
  if (number < n_kv) {
    make_key(args, {values, key_dim}, own, turn_of(args, row), row, number);
    for (std::uint32_t d = head_lane(); d < key_dim; d += kHeadLanes) place.store_k(args.cache, d, values[d]);
  } else {
    make_value(args, {values, value_dim}, row, number - n_kv);
    for (std::uint32_t d = head_lane(); d < value_dim; d += kHeadLanes) place.store_v(args.cache, d, values[d]);
  }
}

}  // namespace

Status finish_heads(const Stream& stream, const HeadsArgs& args) {
  const KvCache& cache = args.cache;
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows},
                                                   {"heads", args.n_heads},
                                                   {"KV heads", cache.n_kv_heads},
                                                   {"head values", cache.head_dim},
                                                   {"V values", cache.value_dim}};
  const std::uint32_t widest = cache.head_dim > cache.value_dim ? cache.head_dim : cache.value_dim;
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.n_heads == 0 || cache.n_kv_heads == 0 || widest == 0 ||
      widest > kMaxHeadValues || args.n_rot % 2 != 0 || args.n_rot > cache.head_dim)
    return invalid_shape("finishing heads", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const dim3 grid(divide_up(args.n_heads + 2 * cache.n_kv_heads, kHeadsOfBlock), args.n_rows);
  launch_overlapped(overlaps_launches(stream.card()), finish_heads_kernel, grid, kHeadLanes * kHeadsOfBlock,
                    kHeadsOfBlock * widest * sizeof(float), stream.native(), args);
  return after_launch(stream, "finishing heads", sizes);
}

}  // namespace terrace::kernels::cuda
