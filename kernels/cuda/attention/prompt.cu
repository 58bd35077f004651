// Attention as two matrix products in registers: a thread block takes 64 queries (rows times the query heads of one KV
// head) and the 256 keys of a split. Scores: a thread holds 16 queries x 8 keys, chains over d; values: 8 queries x 8
// or 4 dimensions, chains over the keys. So 128 fused multiply-adds need six loads of four values from shared memory,
// and 64 need four: what bounds it is the rate of fused multiply-adds.
//
// Shared memory holds queries [d, 64], later scores and then p [256, 64] in one place, and K or V, widened to f32, in
// two parts of 16 KiB: one is used while the next is on its way in registers. Two thread blocks share a multiprocessor:
// one computes while the other waits at its barriers. Loops are short: what does not fit the cache of instructions
// waits.
#include "kernels/cuda/attention/prompt_tile.cuh"

#include <limits>

#include "kernels/cuda/attention/partials.cuh"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/exp_at_most_zero.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kDimsAtOnce = 2;           // of scores, without a branch between them
constexpr std::uint32_t kKeysAtOnce = 4;           // of values, without a branch between them
constexpr float kFirst = -1.0f, kNothing = -2.0f;  // instead of a factor, which is positive

using Shared = PromptShared;

template <class Stored, std::uint32_t kDim>
struct Prompt {
  using Parts = PromptParts<Stored, kDim>;
  static constexpr std::uint32_t kPartDims = Parts::kDims, kPartKeys = Parts::kKeys;
  static constexpr std::uint32_t kKParts = kDim / kPartDims;
  static constexpr std::uint32_t kOwnDims = kDim / 16;  // of a thread
  using Scores = float[16][8];
  using Values = float[8][kOwnDims];

  const AttentionArgs& args;
  Shared& s;
  std::uint32_t kv_head, shared_by_log2;  // of the query heads of a KV head
  std::uint32_t first_row, end_row;       // of the tile
  std::uint32_t n_splits;                 // that lie behind each other in the scratch
  bool whole;

  // The first of a thread's dimensions of values: groups of four.
  static __device__ __forceinline__ std::uint32_t own_dim(const Me& me) {
    return me.warp() / 2 * (kDim / 2) + me.lane() / 4 * 4;
  }

  __device__ __forceinline__ std::uint32_t row_of(std::uint32_t q) const { return first_row + (q >> shared_by_log2); }
  __device__ __forceinline__ std::uint32_t head_of(std::uint32_t q) const {
    return (kv_head << shared_by_log2) + (q & ((1u << shared_by_log2) - 1));
  }

  // Queries, transposed. Those behind the tile's last row are zeros.
  __device__ __forceinline__ void load_queries() const {
    const Me me = Me::now();
    const std::uint32_t q = me.number % kQueries, row = row_of(q);
    const float* from = args.q + row * args.q_stride + std::size_t{head_of(q)} * kDim;
#pragma unroll 8
    for (std::uint32_t d = me.number / kQueries * 4; d < kDim; d += kThreads / kQueries * 4) {
      const Four v = row < end_row ? load_four(from + d) : Four{};
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) s.p[(d + i) * kQueries + q] = v.v[i];
    }
  }

  // Places of the blocks of a split of the stream of row `begin`; instead of one behind the first `n_blocks` of the
  // stream, the last of these: its keys take no part.
  __device__ __forceinline__ void look_up(std::uint32_t split, std::uint32_t begin, std::uint32_t n_blocks) const {
    const Me me = Me::now();
    if (me.number < kQueries || me.number >= kQueries + kSplitBlocks) return;
    const std::uint32_t i = me.number - kQueries, at = min(split * kSplitBlocks + i, n_blocks - 1);
    const std::uint32_t block =
        args.cache.block_tables[std::size_t{args.streams[begin]} * args.cache.table_stride + at];
    s.blocks[split % 2][i] = block * args.cache.n_kv_heads + kv_head;
  }
  // Keys of each query, of rows [begin, end) alone.
  __device__ __forceinline__ void count_keys(std::uint32_t split, std::uint32_t begin, std::uint32_t end) const {
    const Me me = Me::now();
    if (me.number >= kQueries) return;
    const std::uint32_t row = row_of(me.number);
    s.n_keys[me.number] = row >= begin && row < end ? keys_in_split(args, row, split * kKeys) : 0;
  }
  struct Extent {
    std::uint32_t least, most;  // keys of a query that has any
  };
  __device__ __forceinline__ Extent extent() const {
    const Me me = Me::now();
    const std::uint32_t a = s.n_keys[me.lane()], b = s.n_keys[me.lane() + 32];
    const std::uint32_t least = min(a == 0 ? kKeys : a, b == 0 ? kKeys : b);
    return {__reduce_min_sync(~0u, least), __reduce_max_sync(~0u, max(a, b))};
  }

  // A part of the chains of this thread's scores. What is read lies two groups of 32 instructions ahead.
  __device__ __forceinline__ void dot(std::uint32_t part, const float* k_part, std::uint32_t n_keys,
                                      Scores& score) const {
    const Me me = Me::now();
    if (me.warp() * kWarpKeys >= n_keys) return;
    const float* q = s.p + part * kPartDims * kQueries + me.lane() % 4 * 4;
    const float* k = k_part + me.own_key();
    Four qd[4] = {load_four(q), load_four(q + kQueryFours)};
    Groups<2> kd = load_groups<2>(k, kKeyFours);
#pragma unroll 1
    for (std::uint32_t d = 0; d < kPartDims; d += kDimsAtOnce) {
      const std::uint32_t step = d + kDimsAtOnce < kPartDims ? kDimsAtOnce : 0;  // what lies behind is not read
      const float* const next_q = q + step * kQueries;
      const float* const next_k = k + step * kKeys;
#pragma unroll
      for (std::uint32_t i = 1; i <= kDimsAtOnce; ++i) {
        const bool ends = i == kDimsAtOnce;
        const float* const after = ends ? next_q : q + i * kQueries;
        Groups<2> next_kd;
#pragma unroll
        for (std::uint32_t group = 0; group < 4; ++group) {
          const std::uint32_t ahead = (group + 2) % 4;
          qd[ahead] = load_four((group < 2 ? q + (i - 1) * kQueries : after) + ahead * kQueryFours);
          if (group == 1) next_kd = load_groups<2>(ends ? next_k : k + i * kKeys, kKeyFours);
          add_group(kd, qd[group], group, score);
        }
        kd = next_kd;
      }
      q = next_q;
      k = next_k;
    }
  }
  static __device__ __forceinline__ void add_group(const Groups<2>& keys, const Four& queries, std::uint32_t group,
                                                   Scores& score) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) score[4 * group + i][j] = fused(keys.v[j], queries.v[i], score[4 * group + i][j]);
  }

  // Scores to shared memory, in place of the queries.
  __device__ __forceinline__ void put_scores(std::uint32_t n_keys, const Scores& score) const {
    const Me me = Me::now();
    if (me.warp() * kWarpKeys >= n_keys) return;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 16; i += 4)
        *reinterpret_cast<float4*>(s.p + me.key(j) * kQueries + (me.query(i) ^ turned(me.key(j)))) =
            make_float4(score[i][j] * args.scale, score[i + 1][j] * args.scale, score[i + 2][j] * args.scale,
                        score[i + 3][j] * args.scale);
  }

  // f(place of a score, number of its lane) for this thread's keys of [first, end), multiples of 16; of a query that
  // has n_keys. kMasked: keys behind these are passed over.
  template <bool kMasked, class F>
  __device__ __forceinline__ void for_keys(const Me& me, std::uint32_t first, std::uint32_t end, std::uint32_t n_keys,
                                           F f) const {
    float* const own = s.p + me.weighed_half() * kQueries + (me.weighed_query() ^ turned(me.weighed_half()));
#pragma unroll 1
    for (; first < end; first += kLanes)
#pragma unroll
      for (std::uint32_t i = 0; i < kLanes / 2; ++i) {
        const std::uint32_t of_lanes = i % 4 + i / 4 * 8;
        if (!kMasked || first + me.weighed_half() + of_lanes < n_keys) f(own[(first + of_lanes) * kQueries], i);
      }
  }
  template <class F>
  __device__ __forceinline__ void for_keys(const Me& me, const Extent& keys, std::uint32_t n_keys, F f) const {
    const std::uint32_t all = keys.least / kLanes * kLanes;
    for_keys<false>(me, 0, all, n_keys, f);
    for_keys<true>(me, all, keys.most, n_keys, f);
  }
  // Scores become p. Then the query's max and sum are merged with those of the splits before.
  __device__ __forceinline__ void weigh(std::uint32_t split, const Extent& keys) const {
    const Me me = Me::now();
    const std::uint32_t q = me.weighed_query(), n_keys = s.n_keys[q];
    float max = -std::numeric_limits<float>::infinity();
    for_keys(me, keys, n_keys, [&](const float& score, std::uint32_t) { max = fmaxf(max, score); });
    max = fmaxf(max, __shfl_xor_sync(~0u, max, kLanes));
    float lanes[kLanes / 2] = {};
    for_keys(me, keys, n_keys, [&](float& score, std::uint32_t i) {
      score = exp_at_most_zero(score - max);
      lanes[i] = lanes[i] + score;
    });
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float both = lanes[i] + lanes[i + 4];
      sums[i] = both + __shfl_xor_sync(~0u, both, kLanes);
    }
    const float sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    if (me.lane() < kLanes) merge_weights(split, q, n_keys, max, sum);
  }
  __device__ __forceinline__ void merge_weights(std::uint32_t split, std::uint32_t q, std::uint32_t n_keys, float max,
                                                float sum) const {
    if (n_keys == 0) {
      s.before[q] = kNothing;
    } else if (!whole || split == 0) {  // every row has keys in the first
      s.max[q] = max;
      s.sum[q] = sum;
      s.before[q] = kFirst;
    } else {
      Merged state{s.max[q], s.sum[q]};
      const Merged::Factors by = state.add(max, sum);
      s.max[q] = state.max;
      s.sum[q] = state.sum;
      s.before[q] = by.before;
      s.other[q] = by.other;
    }
  }

  struct Key {  // what one key brings to the values
    Groups<2> weights;
    Groups<kOwnDims / 4> values;
  };
  // Where this thread's weights of a key and of those of its four lie: the first four queries, the others; and values.
  struct KeyPlace {
    const float *first, *other, *values;
    __device__ __forceinline__ Key load(std::uint32_t further) const {
      Key key;
      const Four a = load_four(first + further * kQueries), b = load_four(other + further * kQueries);
#pragma unroll
      for (int i = 0; i < 4; ++i) key.weights.v[i] = a.v[i], key.weights.v[4 + i] = b.v[i];
      key.values = load_groups<kOwnDims / 4>(values + further * kDim, kKeyFours);
      return key;
    }
    // n keys further; four on, the halves of queries change places.
    __device__ __forceinline__ KeyPlace four_on(std::uint32_t n) const {
      return {other + n * kQueries, first + n * kQueries, values + n * kDim};
    }
  };
  static __device__ __forceinline__ void add_key(const Key& key, int q, Values& o) {
#pragma unroll
    for (std::uint32_t d = 0; d < kOwnDims; ++d) o[q][d] = fused(key.weights.v[q], key.values.v[d], o[q][d]);
  }
  // Keys [first, last) of the split, which V's part at hand begins with; those before `all` are every query's.
  __device__ __forceinline__ void add_values(const float* part, std::uint32_t first, std::uint32_t all,
                                             std::uint32_t last, Values& o) const {
    const Me me = Me::now();
    const float* const p = s.p + first * kQueries + me.value_query(0);
    KeyPlace place{p, p + kQueryFours, part + own_dim(me)};
    std::uint32_t k = first;
    if (k + kKeysAtOnce <= all) {
      Key key = place.load(0);
#pragma unroll 1
      for (; k + kKeysAtOnce <= all; k += kKeysAtOnce) {
        const KeyPlace next_place = place.four_on(k + 2 * kKeysAtOnce <= all ? kKeysAtOnce : 0);  // none: any
#pragma unroll
        for (std::uint32_t i = 1; i <= kKeysAtOnce; ++i) {
          const Key next = i < kKeysAtOnce ? place.load(i) : next_place.load(0);
#pragma unroll
          for (int q = 0; q < 8; ++q) add_key(key, q, o);
          key = next;
        }
        place = next_place;
      }
    }
#pragma unroll 1
    for (; k < last; ++k) {
      const float* const weights = s.p + k * kQueries + me.value_query(0);
      const KeyPlace one{weights + turned(k), weights + (kQueryFours - turned(k)),
                         part + (k - first) * kDim + own_dim(me)};
      const Key key = one.load(0);
#pragma unroll
      for (int q = 0; q < 8; ++q)
        if (k < s.n_keys[me.value_query(q)]) add_key(key, q, o);
    }
  }

  // What the splits before have left in the scratch, and what this one makes of it. Queries that have no row read
  // another's.
  __device__ __forceinline__ float* result_of(std::uint32_t q, std::uint32_t split) const {
    return partial(args, n_splits, min(row_of(q), end_row - 1), head_of(q), whole ? 0 : split);
  }
  static __device__ __forceinline__ std::uint32_t dim(const Me& me, std::uint32_t d) {
    return own_dim(me) + d % 4 + d / 4 * kKeyFours;
  }
  __device__ __forceinline__ void load_results(Values& so_far) const {
    const Me me = Me::now();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* const from = result_of(me.value_query(i), 0);
#pragma unroll
      for (std::uint32_t d = 0; d < kOwnDims; d += 2) {
        const float2 pair = *reinterpret_cast<const float2*>(from + dim(me, d));
        so_far[i][d] = pair.x;
        so_far[i][d + 1] = pair.y;
      }
    }
  }
  __device__ __forceinline__ void store_results(std::uint32_t split, const Values& so_far, const Values& o) const {
    const Me me = Me::now();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t q = me.value_query(i);
      const float before = s.before[q];
      if (before == kNothing) continue;
      const Merged::Factors by{before, s.other[q]};
      float* const to = result_of(q, split);
#pragma unroll
      for (std::uint32_t d = 0; d < kOwnDims; d += 2) {
        const float2 merged =
            make_float2(Merged::merge(so_far[i][d], o[i][d], by), Merged::merge(so_far[i][d + 1], o[i][d + 1], by));
        *reinterpret_cast<float2*>(to + dim(me, d)) = before == kFirst ? make_float2(o[i][d], o[i][d + 1]) : merged;
      }
      if (own_dim(me) == 0) {
        to[kDim] = s.max[q];
        to[kDim + 1] = s.sum[q];
      }
    }
  }

  // Splits [split, end_split) for rows [begin, end) of one stream, which have `most` keys at most in all.
  __device__ __forceinline__ void run(std::uint32_t split, std::uint32_t end_split, std::uint32_t begin,
                                      std::uint32_t end, std::uint32_t most) const {
    const std::uint32_t n_blocks = (most + kKvBlockPositions - 1) / kKvBlockPositions;
    std::uint32_t at = 0;  // of the two parts: the next to be used
    const Parts parts{args.cache, s.blocks};
    typename Parts::Raw raw;
    look_up(split, begin, n_blocks);
    __syncthreads();
    parts.fetch_k(split, 0, raw);
    Parts::put_k(raw, s.part[0]);
    for (; split < end_split; ++split) {
      count_keys(split, begin, end);
      if (split + 1 < end_split) look_up(split + 1, begin, n_blocks);
      load_queries();
      Extent keys;
      {
        Scores score = {};
#pragma unroll 1
        for (std::uint32_t part = 0; part < kKParts; ++part, at ^= 1) {
          __syncthreads();
          if (part == 0) keys = extent();
          const bool next_is_k = part + 1 < kKParts;
          next_is_k ? parts.fetch_k(split, part + 1, raw) : parts.fetch_v(split, 0, raw);
          dot(part, s.part[at], keys.most, score);
          next_is_k ? Parts::put_k(raw, s.part[at ^ 1]) : Parts::put_v(raw, s.part[at ^ 1]);
        }
        __syncthreads();
        put_scores(keys.most, score);
      }
      __syncthreads();
      weigh(split, keys);
      Values o = {};
#pragma unroll 1
      for (std::uint32_t first = 0; first < keys.most; first += kPartKeys, at ^= 1) {
        __syncthreads();
        const std::uint32_t next = first + kPartKeys, last = min(next, keys.most);
        const bool next_is_v = next < keys.most, next_is_k = !next_is_v && split + 1 < end_split;
        if (next_is_v) parts.fetch_v(split, next / kPartKeys, raw);
        if (next_is_k) parts.fetch_k(split + 1, 0, raw);
        add_values(s.part[at], first, min(keys.least, last), last, o);
        if (next_is_v) Parts::put_v(raw, s.part[at ^ 1]);
        if (next_is_k) Parts::put_k(raw, s.part[at ^ 1]);
      }
      Values so_far;
      if (whole && split > 0) load_results(so_far);
      __syncthreads();
      store_results(split, so_far, o);
    }
  }

  // All rows of the tile, by streams.
  __device__ __forceinline__ void run_streams() const {
    for (std::uint32_t begin = first_row; begin < end_row;) {
      std::uint32_t end = begin + 1, most = args.n_keys[begin];
      for (; end < end_row && args.streams[end] == args.streams[begin]; ++end) most = max(most, args.n_keys[end]);
      const std::uint32_t splits = (most + kKeys - 1) / kKeys;
      const std::uint32_t first = whole ? 0 : blockIdx.y, last = whole ? splits : min(splits, blockIdx.y + 1);
      if (first < last) run(first, last, begin, end, most);
      begin = end;
      __syncthreads();
    }
  }
};

// Grid: (KV heads * tiles of rows, splits or 1). The last rows have most keys, so they begin.
template <class Stored, std::uint32_t kDim>
__global__ void __launch_bounds__(kThreads, 2)
    attend_prompt(const AttentionArgs args, std::uint32_t tile_rows, bool whole) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t n_kv_heads = args.cache.n_kv_heads, tile = gridDim.x / n_kv_heads - 1 - blockIdx.x / n_kv_heads;
  const std::uint32_t first_row = tile * tile_rows;
  const Prompt<Stored, kDim> prompt{args,
                                    *reinterpret_cast<Shared*>(memory),
                                    blockIdx.x % n_kv_heads,
                                    static_cast<std::uint32_t>(31 - __clz(static_cast<int>(args.n_heads / n_kv_heads))),
                                    first_row,
                                    min(args.n_rows, first_row + tile_rows),
                                    gridDim.y,
                                    whole};
  prompt.run_streams();
}

template <class Stored, std::uint32_t kDim>
void launch(const Stream& stream, const AttentionArgs& args, bool whole) {
  const std::uint32_t tile_rows = prompt_tile_rows(args);
  const dim3 grid(args.cache.n_kv_heads * divide_up(args.n_rows, tile_rows),
                  whole ? 1 : divide_up(args.max_keys, kSplitPositions));
  const auto kernel = attend_prompt<Stored, kDim>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared)));
  launch_overlapped(overlaps_launches(stream.card()), kernel, grid, kThreads, sizeof(Shared), stream.native(), args,
                    tile_rows, whole);
}

}  // namespace

void launch_prompt_splits(const Stream& stream, const AttentionArgs& args, bool whole) {
  const bool wide = args.cache.head_dim == 128;
  if (args.cache.type == KvType::kF16) {
    wide ? launch<__half, 128>(stream, args, whole) : launch<__half, 64>(stream, args, whole);
  } else {
    wide ? launch<float, 128>(stream, args, whole) : launch<float, 64>(stream, args, whole);
  }
}

}  // namespace terrace::kernels::cuda
