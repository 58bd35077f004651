// From the products of Q, K and V to attention's results in one launch, for a step of one row and at most four splits.
// A thread block takes a split of two heads; the splits of two heads, which make 256 values of the row, are a cluster,
// whose first thread block merges what the others hold in their shared memory. Keys and values of the split are brought
// there before the kernels before this one have ended: all but the row's own are older than this step. Each thread
// block finishes the queries that it needs, and where its split has the row's own position key and value too.
#include <cooperative_groups.h>

#include <limits>
#include <utility>

#include "kernels/cuda/activations/quantize.cuh"
#include "kernels/cuda/attention/partials.cuh"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/trunk_ops/heads.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256, kKeys = kSplitPositions, kWarps = kThreads / kHeadLanes;
constexpr std::uint32_t kRowValues = 256;  // of a cluster: blocks of every class divide that
constexpr std::uint32_t kSplitBlocks = kKeys / kKvBlockPositions;
using Stored = __half;
constexpr std::uint32_t kDim = 128, kHeads = 2;  // of a head; of a thread block
constexpr std::uint32_t kSplits = 4;             // of a cluster: some may have no keys
static_assert(kThreads == kKeys && kThreads == kRowValues, "a thread to a key, and to a value");
static_assert(kHeads * kDim == kRowValues, "a cluster has the splits of a thread block's heads");

struct RowShared {
  Stored k[kKeys * kDim];  // [blocks, kDim, 32]
  Stored v[kKeys * kDim];  // [blocks, 32, kDim]
  float q[kHeads][kDim];
  float own_key[kDim], own_value[kDim];  // of the row's position
  float cosines[kDim / 2], sines[kDim / 2];
  float p[kHeads][kKeys];
  float maxima[kHeads][kWarps];
  float max[kHeads], sum[kHeads], o[kHeads][kDim];  // the split's: read by the cluster's first thread block
  float merged[kRowValues];
  std::uint32_t blocks[kSplitBlocks];
};

#if __CUDA_ARCH__ >= 900
struct RowSplit {
  const HeadsAndAttentionArgs& args;
  RowShared& s;
  std::uint32_t row, split, first_head, kv_head;
  std::uint32_t n_keys;  // of the split
  bool has_own;          // the last of them is the row's own position

  static __device__ __forceinline__ std::uint32_t warp() { return threadIdx.x / kHeadLanes; }
  __device__ __forceinline__ const AttentionArgs& attention() const { return args.attention; }
  __device__ __forceinline__ const KvCache& cache() const { return args.heads.cache; }

  // What is older than this step: RoPE's angles, and keys and values of all positions before the row's own.
  __device__ __forceinline__ void bring() const {
    const std::uint32_t n_blocks = (n_keys + kKvBlockPositions - 1) / kKvBlockPositions;
    if (threadIdx.x < n_blocks)
      s.blocks[threadIdx.x] = cache().block_tables[std::size_t{args.heads.streams[row]} * cache().table_stride +
                                                   split * kSplitBlocks + threadIdx.x];
    const Turn turn = turn_of(args.heads, row);
    if (threadIdx.x < args.heads.n_rot / 2) {
      s.cosines[threadIdx.x] = turn.cosines[threadIdx.x];
      s.sines[threadIdx.x] = turn.sines[threadIdx.x];
    }
    __syncthreads();
    copy(s.k, cache().k, n_blocks);
    asm volatile("cp.async.commit_group;" ::: "memory");
    copy(s.v, cache().v, n_blocks);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void copy(Stored* to, const std::byte* from, std::uint32_t n_blocks) const {
    constexpr std::uint32_t kOfBlock = kKvBlockPositions * kDim, kValues = 16 / sizeof(Stored);
    for (std::uint32_t i = threadIdx.x * kValues; i < n_blocks * kOfBlock; i += kThreads * kValues) {
      const std::size_t place = std::size_t{s.blocks[i / kOfBlock]} * cache().n_kv_heads + kv_head;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<std::uint32_t>(__cvta_generic_to_shared(to + i))),
                   "l"(reinterpret_cast<const Stored*>(from) + place * kOfBlock + i % kOfBlock)
                   : "memory");
    }
  }

  // Queries of this thread block, and the row's own key and value: a warp to each.
  __device__ __forceinline__ void finish_heads(const HeadWeights& own) const {
    const Turn turn{s.cosines, s.sines};
    if (warp() < kHeads) {
      make_query(args.heads, {s.q[warp()], kDim}, own, turn, row, first_head + warp());
    } else if (warp() == kHeads && has_own) {
      make_key(args.heads, {s.own_key, kDim}, own, turn, row, kv_head);
    } else if (warp() == kHeads + 1 && has_own) {
      make_value(args.heads, {s.own_value, kDim}, row, kv_head);
    }
  }
  // Of the row's own position, where attention reads it; the first of the heads that share it puts it in the cache.
  __device__ __forceinline__ void place_own() const {
    if (threadIdx.x < kDim) {
      const std::uint32_t d = threadIdx.x, key = n_keys - 1;
      std::byte* const k = reinterpret_cast<std::byte*>(s.k + key / kKvBlockPositions * kKvBlockPositions * kDim);
      store(k, d * kKvBlockPositions + key % kKvBlockPositions, cache().type, s.own_key[d]);
      store(reinterpret_cast<std::byte*>(s.v), key * kDim + d, cache().type, s.own_value[d]);
      if (first_head % (args.heads.n_heads / cache().n_kv_heads) == 0) {
        const KvPlace place = kv_place(cache(), args.heads.streams[row], args.heads.positions[row], kv_head);
        place.store_k(cache(), d, s.own_key[d]);
        place.store_v(cache(), d, s.own_value[d]);
      }
    }
    __syncthreads();
  }

  // A thread's key: its scores become p, 0 behind the row's last key.
  __device__ __forceinline__ void score() const {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    const std::uint32_t key = threadIdx.x;
    float scores[kHeads] = {};
    if (key < n_keys) dot(key, scores);
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      scores[h] = key < n_keys ? scores[h] * attention().scale : kLowest;
      float most = scores[h];
#pragma unroll
      for (int apart = 1; apart < 32; apart *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
      if (head_lane() == 0) s.maxima[h][warp()] = most;
    }
    __syncthreads();
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      float max = s.maxima[h][0];
#pragma unroll
      for (std::uint32_t w = 1; w < kWarps; ++w) max = fmaxf(max, s.maxima[h][w]);
      if (threadIdx.x == 0) s.max[h] = max;
      s.p[h][key] = key < n_keys ? exp_exact(scores[h] - max) : 0.0f;
    }
    __syncthreads();
  }
  __device__ __forceinline__ void dot(std::uint32_t key, float (&scores)[kHeads]) const {
    const Stored* const k = s.k + key / kKvBlockPositions * kKvBlockPositions * kDim + key % kKvBlockPositions;
#pragma unroll 8
    for (std::uint32_t d = 0; d < kDim; d += 4) {
      float4 q[kHeads];
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; ++h) q[h] = *reinterpret_cast<const float4*>(s.q[h] + d);
      const float kd[4] = {widened(k[d * kKvBlockPositions]), widened(k[(d + 1) * kKvBlockPositions]),
                           widened(k[(d + 2) * kKvBlockPositions]), widened(k[(d + 3) * kKvBlockPositions])};
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        scores[h] = fused(kd[0], q[h].x, scores[h]);
        scores[h] = fused(kd[1], q[h].y, scores[h]);
        scores[h] = fused(kd[2], q[h].z, scores[h]);
        scores[h] = fused(kd[3], q[h].w, scores[h]);
      }
    }
  }

  // Sums of p by the last warp, which has the fewest values; values by a thread to a head's dimension.
  __device__ __forceinline__ void add() const {
    if (warp() == kWarps - 1) {
      const std::uint32_t h = min(head_lane() / kLanes, kHeads - 1), own = head_lane() % kLanes;
      float lane = 0.0f;
#pragma unroll
      for (std::uint32_t i = own; i < kKeys; i += kLanes) lane = lane + s.p[h][i];  // + 0 changes no sum
      const float sum = sum_of_lanes(lane);
      if (own == 0) s.sum[h] = sum;
    }
    if (threadIdx.x >= kHeads * kDim) return;
    const std::uint32_t h = threadIdx.x / kDim, d = threadIdx.x % kDim;
    float o = 0.0f;
    std::uint32_t key = 0;
#pragma unroll 8
    for (; key + 4 <= n_keys; key += 4) {
      const float4 p = *reinterpret_cast<const float4*>(s.p[h] + key);
      o = fused(p.x, widened(s.v[key * kDim + d]), o);
      o = fused(p.y, widened(s.v[(key + 1) * kDim + d]), o);
      o = fused(p.z, widened(s.v[(key + 2) * kDim + d]), o);
      o = fused(p.w, widened(s.v[(key + 3) * kDim + d]), o);
    }
    for (; key < n_keys; ++key) o = fused(s.p[h][key], widened(s.v[key * kDim + d]), o);
    s.o[h][d] = o;
  }

  // The cluster's values of the row, whose splits its thread blocks hold: those of the first head, then of the next.
  __device__ __forceinline__ void merge(std::uint32_t n_splits, std::uint32_t own_splits, std::uint32_t first_value) {
    const auto cluster = cooperative_groups::this_cluster();
    const std::uint32_t head = threadIdx.x / kDim, d = threadIdx.x % kDim;
    const float value = merged(attention(), first_value / kDim + head, own_splits, [&](std::uint32_t other) {
      const RowShared& from = *cluster.map_shared_rank(&s, head / kHeads * n_splits + other);
      return SplitResult{from.o[head % kHeads][d], from.max[head % kHeads], from.sum[head % kHeads]};
    });
    s.merged[threadIdx.x] = value;
    const bool finite = __syncthreads_and(is_finite(value)) != 0;
    if (!finite && threadIdx.x == 0) atomicMin(args.rows.failures + row, args.rows.code);
  }
};
#endif

// Grid: (clusters of the row, their thread blocks side by side; rows). n_splits: of a cluster.
__global__ void __launch_bounds__(kThreads) attend_row(const HeadsAndAttentionArgs args, std::uint32_t n_splits) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) std::uint8_t memory[];
  let_next_begin();
  const auto cluster = cooperative_groups::this_cluster();
  const std::uint32_t rank = cluster.block_rank(), row = blockIdx.y;
  const std::uint32_t first_value = blockIdx.x / cluster.num_blocks() * kRowValues;
  const std::uint32_t first_head = first_value / kDim + rank / n_splits * kHeads, split = rank % n_splits;
  const std::uint32_t n_keys = keys_in_split(args.attention, row, split * kKeys), all_keys = args.attention.n_keys[row];
  RowSplit own{args,       *reinterpret_cast<RowShared*>(memory),
               row,        split,
               first_head, first_head / (args.heads.n_heads / args.heads.cache.n_kv_heads),
               n_keys,     n_keys > 0 && split * kKeys + n_keys == all_keys};
  if (n_keys > 0) own.bring();
  const HeadWeights weights =
      bring_head_weights(threadIdx.x / kHeadLanes < kHeads ? args.heads.q_norm : args.heads.k_norm, kDim);
  wait_for_previous();
  if (n_keys > 0) {
    own.finish_heads(weights);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (own.has_own) own.place_own();
    own.score();
    own.add();
  }
  cluster.sync();
  if (rank == 0) own.merge(n_splits, (all_keys + kKeys - 1) / kKeys, first_value);
  auto all_read = cluster.barrier_arrive();
  if (rank == 0)
    write_card_values(args.rows.out.activation, own.s.merged, first_value, kRowValues,
                      args.rows.out.rows + row * args.rows.out.stride, args.heads.n_heads * kDim);
  cluster.barrier_wait(std::move(all_read));  // nobody's shared memory goes before it was read
#endif
}

// How it is launched for these shapes.
struct RowLaunch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  RowLaunch(const Stream& stream, const HeadsArgs& heads) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {kSplits, 1, 1};
    config.gridDim = dim3(kSplits * clusters(heads), heads.n_rows);
    config.blockDim = kThreads;
    config.dynamicSmemBytes = sizeof(RowShared);
    config.stream = stream.native();
    config.attrs = attributes;
    config.numAttrs = 2;
    has_room_ =
        cudaFuncSetAttribute(attend_row, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(RowShared)) == cudaSuccess;
  }
  RowLaunch(const RowLaunch&) = delete;
  RowLaunch& operator=(const RowLaunch&) = delete;

  static std::uint32_t clusters(const HeadsArgs& heads) { return heads.n_heads / kHeads; }
  bool runs_at_once() const {
    int at_once = 0;
    if (has_room_ && cudaOccupancyMaxActiveClusters(&at_once, attend_row, &config) == cudaSuccess)
      return static_cast<std::uint32_t>(at_once) * kSplits >= config.gridDim.x;
    (void)cudaGetLastError();  // a card that cannot is no error of the launch that takes this one's place
    return false;
  }

 private:
  bool has_room_ = false;
};

}  // namespace

bool has_heads_and_attention(const Stream& stream, const HeadsAndAttentionArgs& args) {
  const HeadsArgs& heads = args.heads;
  const KvCache& cache = heads.cache;
  return overlaps_launches(stream.card()) && args.attention.rows_are_alone && heads.n_rows == 1 &&
         cache.type == KvType::kF16 && cache.head_dim == kDim && cache.value_dim == kDim && heads.n_rot <= kDim &&
         args.attention.max_keys > 0 && args.attention.max_keys <= kSplits * kKeys &&
         heads.n_heads % (kHeads * cache.n_kv_heads) == 0 &&
         sizeof(RowShared) <= stream.card().shared_bytes_per_block && before_launch(stream).ok() &&
         RowLaunch(stream, heads).runs_at_once();
}

Status heads_and_attention(const Stream& stream, const HeadsAndAttentionArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.heads.n_rows},
                                                   {"heads", args.heads.n_heads},
                                                   {"head values", args.heads.cache.head_dim},
                                                   {"keys at most", args.attention.max_keys}};
  if (!has_heads_and_attention(stream, args)) return invalid_shape("heads and attention", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const RowLaunch launch(stream, args.heads);
  (void)cudaLaunchKernelEx(&launch.config, attend_row, args, kSplits);
  return after_launch(stream, "heads and attention", sizes);
}

}  // namespace terrace::kernels::cuda
