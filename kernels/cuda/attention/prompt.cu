// Attention as two matrix products in registers: a thread block takes 64 queries (rows times the query heads of one KV
// head) and the 256 keys of a split. Scores: a thread holds 8 queries x 8 keys, chains over d; values: 8 queries x 2 or
// 4 dimensions, chains over the keys. Each value that is read from shared memory serves eight chains, so what bounds it
// is the rate of fused multiply-adds.
//
// Shared memory holds queries [d, 64] and later p [256, 64] in one place, and K or V, widened to f32, a part of 32 KiB
// at a time: the next part is on its way in registers while one is used. Two thread blocks share a multiprocessor: one
// computes while the other waits at its barriers.
#include "kernels/cuda/attention/partials.cuh"
#include "kernels/cuda/attention/plan.h"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kQueries = kPromptQueries, kKeys = kPromptKeys, kPart = kPromptPart, kPStride = kPromptPStride;
constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kSplitBlocks = kSplitPositions / kKvBlockPositions;
constexpr float kFirst = -1.0f, kNothing = -2.0f;  // instead of a factor, which is positive

using Shared = PromptShared;

struct Eight {
  float v[8];
};
// Of eight queries of a thread: four, and the four that lie 16 further.
__device__ __forceinline__ Eight load_eight(const float* at, std::uint32_t apart) {
  const float4 a = *reinterpret_cast<const float4*>(at), b = *reinterpret_cast<const float4*>(at + apart);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

template <class Stored, std::uint32_t kDim>
struct Prompt {
  static constexpr std::uint32_t kValues = 16 / sizeof(Stored);        // of one load
  static constexpr std::uint32_t kLoads = kPart / kValues / kThreads;  // of a thread, for a part
  static constexpr std::uint32_t kPartDims = kPart / kKeys;            // of K
  static constexpr std::uint32_t kPartKeys = kPart / kDim;             // of V
  static constexpr std::uint32_t kOwnDims = kDim / 32;                 // of a thread
  struct Raw {
    uint4 v[kLoads];
  };

  const AttentionArgs& args;
  Shared& s;
  std::uint32_t kv_head, shared_by;  // query heads of a KV head
  std::uint32_t first_row, end_row;  // of the tile
  std::uint32_t n_splits;            // that lie behind each other in the scratch
  bool whole;

  static __device__ __forceinline__ std::uint32_t lane() { return threadIdx.x % 32; }
  static __device__ __forceinline__ std::uint32_t warp() { return threadIdx.x / 32; }
  // The first of this thread's queries; the others: + 1 .. 3 and + 16 .. 19.
  static __device__ __forceinline__ std::uint32_t own_query() { return warp() % 2 * 32 + lane() % 4 * 4; }
  static __device__ __forceinline__ std::uint32_t query(std::uint32_t i) { return own_query() + i % 4 + i / 4 * 16; }
  // The first of its keys (+ 1 .. 3, + 32 .. 35) and of its dimensions.
  static __device__ __forceinline__ std::uint32_t own_key() { return warp() / 2 * 64 + lane() / 4 * 4; }
  static __device__ __forceinline__ std::uint32_t key(std::uint32_t j) { return own_key() + j % 4 + j / 4 * 32; }
  static __device__ __forceinline__ std::uint32_t own_dim() { return (warp() / 2 * 8 + lane() / 4) * kOwnDims; }

  __device__ __forceinline__ std::uint32_t row_of(std::uint32_t q) const { return first_row + q / shared_by; }
  __device__ __forceinline__ std::uint32_t head_of(std::uint32_t q) const {
    return kv_head * shared_by + q % shared_by;
  }

  // Block `b` of the split in the cache.
  __device__ __forceinline__ const Stored* in_cache(const std::byte* base, std::uint32_t b) const {
    const std::size_t place = std::size_t{s.blocks[b]} * args.cache.n_kv_heads + kv_head;
    return reinterpret_cast<const Stored*>(base) + place * kKvBlockPositions * kDim;
  }
  // Dimensions [32 part, ...) of all keys, or keys [kPartKeys * part, ...). Blocks that the split has not give zeros.
  __device__ __forceinline__ void fetch_k(std::uint32_t part, std::uint32_t n_blocks, Raw& raw) const {
    constexpr std::uint32_t kOfBlock = kPartDims * kKvBlockPositions;  // values
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t at = (threadIdx.x + j * kThreads) * kValues, b = at / kOfBlock;
      raw.v[j] = b < n_blocks
                     ? *reinterpret_cast<const uint4*>(in_cache(args.cache.k, b) + part * kOfBlock + at % kOfBlock)
                     : uint4{};
    }
  }
  __device__ __forceinline__ void fetch_v(std::uint32_t part, std::uint32_t n_blocks, Raw& raw) const {
    constexpr std::uint32_t kOfBlock = kKvBlockPositions * kDim;
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t at = (threadIdx.x + j * kThreads) * kValues, b = part * (kPart / kOfBlock) + at / kOfBlock;
      raw.v[j] = b < n_blocks ? *reinterpret_cast<const uint4*>(in_cache(args.cache.v, b) + at % kOfBlock) : uint4{};
    }
  }
  static __device__ __forceinline__ void widen(const uint4& raw, float* to) {
    Stored values[kValues];
    memcpy(values, &raw, sizeof raw);
#pragma unroll
    for (std::uint32_t i = 0; i < kValues; i += 4)
      *reinterpret_cast<float4*>(to + i) =
          make_float4(widened(values[i]), widened(values[i + 1]), widened(values[i + 2]), widened(values[i + 3]));
  }
  __device__ __forceinline__ void put_k(const Raw& raw) const {
    constexpr std::uint32_t kOfBlock = kPartDims * kKvBlockPositions;
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t at = (threadIdx.x + j * kThreads) * kValues, in_block = at % kOfBlock;
      widen(raw.v[j], s.part + in_block / kKvBlockPositions * kKeys + at / kOfBlock * kKvBlockPositions +
                          in_block % kKvBlockPositions);
    }
  }
  __device__ __forceinline__ void put_v(const Raw& raw) const {
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) widen(raw.v[j], s.part + (threadIdx.x + j * kThreads) * kValues);
  }

  // Queries, transposed. Those behind the tile's last row are zeros.
  __device__ __forceinline__ void load_queries() const {
    for (std::uint32_t i = threadIdx.x; i < kQueries * kDim / 4; i += kThreads) {
      const std::uint32_t q = i % kQueries, d = i / kQueries * 4;
      float4 v{};
      if (row_of(q) < end_row)
        v = *reinterpret_cast<const float4*>(args.q + row_of(q) * args.q_stride + std::size_t{head_of(q)} * kDim + d);
      s.p[d * kQueries + q] = v.x;
      s.p[(d + 1) * kQueries + q] = v.y;
      s.p[(d + 2) * kQueries + q] = v.z;
      s.p[(d + 3) * kQueries + q] = v.w;
    }
  }

  // Keys of each query, of rows [begin, end) alone, and the split's blocks.
  __device__ __forceinline__ void look_at(std::uint32_t split, std::uint32_t begin, std::uint32_t end) const {
    if (threadIdx.x < kQueries) {
      const std::uint32_t row = row_of(threadIdx.x);
      s.n_keys[threadIdx.x] = row >= begin && row < end ? keys_in_split(args, row, split * kKeys) : 0;
    } else if (threadIdx.x < kQueries + kSplitBlocks) {
      const std::uint32_t i = threadIdx.x - kQueries, at = split * kSplitBlocks + i;
      s.blocks[i] = at < args.cache.table_stride
                        ? args.cache.block_tables[std::size_t{args.streams[begin]} * args.cache.table_stride + at]
                        : 0;
    }
    __syncthreads();
  }
  struct Extent {
    std::uint32_t least, most;  // keys of a query that has any
  };
  __device__ __forceinline__ Extent extent() const {
    const std::uint32_t a = s.n_keys[lane()], b = s.n_keys[lane() + 32];
    const std::uint32_t least = min(a == 0 ? kKeys : a, b == 0 ? kKeys : b);
    return {__reduce_min_sync(~0u, least), __reduce_max_sync(~0u, max(a, b))};
  }

  // A part of the chains of this thread's scores.
  __device__ __forceinline__ void dot(std::uint32_t part, float (&score)[8][8]) const {
    const float* const q = s.p + part * kPartDims * kQueries + own_query();
    const float* const k = s.part + own_key();
#pragma unroll 4
    for (int d = 0; d < static_cast<int>(kPartDims); ++d) {
      const Eight qd = load_eight(q + d * static_cast<int>(kQueries), 16);
      const Eight kd = load_eight(k + d * static_cast<int>(kKeys), 32);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) score[i][j] = fused(kd.v[j], qd.v[i], score[i][j]);
    }
  }

  // Scores become p in shared memory, in place of the queries.
  __device__ __forceinline__ void weigh(float (&score)[8][8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t n_keys = s.n_keys[query(i)];
      float most = -__int_as_float(0x7f800000);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        score[i][j] = score[i][j] * args.scale;
        most = fmaxf(most, key(j) < n_keys ? score[i][j] : -__int_as_float(0x7f800000));
      }
#pragma unroll
      for (int apart = 4; apart < 32; apart *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
      if (lane() < 4) s.maxima[warp() / 2][query(i)] = most;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t q = query(i), n_keys = s.n_keys[q];
      const float max = fmaxf(fmaxf(s.maxima[0][q], s.maxima[1][q]), fmaxf(s.maxima[2][q], s.maxima[3][q]));
      if (threadIdx.x / 64 == 0 && lane() < 4) s.split_max[q] = max;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float weight = exp_exact(score[i][j] - max);
        score[i][j] = key(j) < n_keys ? weight : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float4*>(s.p + key(j) * kPStride + own_query() + 16 * half) =
            make_float4(score[4 * half][j], score[4 * half + 1][j], score[4 * half + 2][j], score[4 * half + 3][j]);
  }

  // Sums of p in 16 lanes; then a thread to a query merges the split's max and sum into those so far.
  __device__ __forceinline__ void add_weights() const {
#pragma unroll
    for (std::uint32_t q = threadIdx.x / kLanes; q < kQueries; q += kThreads / kLanes) {
      const std::uint32_t n_keys = s.n_keys[q];
      float sum = 0.0f;
#pragma unroll 4
      for (std::uint32_t k = threadIdx.x % kLanes; k < n_keys; k += kLanes) sum = sum + s.p[k * kPStride + q];
      sum = sum_of_lanes(sum);
      if (threadIdx.x % kLanes == 0) s.split_sum[q] = sum;
    }
  }
  __device__ __forceinline__ void merge_weights(std::uint32_t split) const {
    if (threadIdx.x >= kQueries) return;
    const std::uint32_t q = threadIdx.x;
    if (s.n_keys[q] == 0) {
      s.before[q] = kNothing;
    } else if (!whole || split == 0) {  // every row has keys in the first
      s.max[q] = s.split_max[q];
      s.sum[q] = s.split_sum[q];
      s.before[q] = kFirst;
    } else {
      Merged state{s.max[q], s.sum[q]};
      const Merged::Factors by = state.add(s.split_max[q], s.split_sum[q]);
      s.max[q] = state.max;
      s.sum[q] = state.sum;
      s.before[q] = by.before;
      s.other[q] = by.other;
    }
  }

  // Keys [begin, end) of V's part at hand, which starts at key `first`. kMasked: some query has fewer.
  template <bool kMasked>
  __device__ __forceinline__ void add_values(std::uint32_t first, std::uint32_t begin, std::uint32_t end,
                                             float (&o)[8][kOwnDims]) const {
    std::uint32_t n_keys[8];
    if constexpr (kMasked)
#pragma unroll
      for (int i = 0; i < 8; ++i) n_keys[i] = s.n_keys[query(i)];
    const float* const p = s.p + own_query();
    const float* const v = s.part + own_dim();
#pragma unroll(kMasked ? 1 : 8)
    for (int k = static_cast<int>(begin); k < static_cast<int>(end); ++k) {
      const Eight weights = load_eight(p + k * static_cast<int>(kPStride), 16);
      float values[kOwnDims];
      if constexpr (kOwnDims == 4) {
        const float4 four =
            *reinterpret_cast<const float4*>(v + (k - static_cast<int>(first)) * static_cast<int>(kDim));
        values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
      } else {
        const float2 two = *reinterpret_cast<const float2*>(v + (k - static_cast<int>(first)) * static_cast<int>(kDim));
        values[0] = two.x, values[1] = two.y;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (!kMasked || static_cast<std::uint32_t>(k) < n_keys[i])
#pragma unroll
          for (std::uint32_t d = 0; d < kOwnDims; ++d) o[i][d] = fused(weights.v[i], values[d], o[i][d]);
    }
  }

  // The split's values into what lies in the scratch.
  __device__ __forceinline__ void merge_values(std::uint32_t split, const float (&o)[8][kOwnDims]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t q = query(i);
      const float before = s.before[q];
      if (before == kNothing) continue;
      float* const to = partial(args, n_splits, row_of(q), head_of(q), whole ? 0 : split);
#pragma unroll
      for (std::uint32_t d = 0; d < kOwnDims; d += 2) {
        auto* const pair = reinterpret_cast<float2*>(to + own_dim() + d);
        float2 result = make_float2(o[i][d], o[i][d + 1]);
        if (before != kFirst) {
          const Merged::Factors by{before, s.other[q]};
          const float2 so_far = *pair;
          result = make_float2(Merged::merge(so_far.x, result.x, by), Merged::merge(so_far.y, result.y, by));
        }
        *pair = result;
      }
      if (own_dim() == 0) {
        to[kDim] = s.max[q];
        to[kDim + 1] = s.sum[q];
      }
    }
  }

  // One split for rows [begin, end) of one stream.
  __device__ __forceinline__ void run(std::uint32_t split, std::uint32_t begin, std::uint32_t end) const {
    look_at(split, begin, end);
    const Extent keys = extent();
    if (keys.most == 0) {
      __syncthreads();
      return;
    }
    const std::uint32_t n_blocks = (keys.most + kKvBlockPositions - 1) / kKvBlockPositions;
    const bool has_keys = warp() / 2 * 64 < keys.most;
    Raw raw;
    fetch_k(0, n_blocks, raw);
    load_queries();
    {
      float score[8][8] = {};
      for (std::uint32_t part = 0; part < kDim / kPartDims; ++part) {
        put_k(raw);
        __syncthreads();
        if (part + 1 < kDim / kPartDims) {
          fetch_k(part + 1, n_blocks, raw);
        } else {
          fetch_v(0, n_blocks, raw);
        }
        if (has_keys) dot(part, score);
        __syncthreads();
      }
      weigh(score);
    }
    float o[8][kOwnDims] = {};
    for (std::uint32_t first = 0; first < keys.most; first += kPartKeys) {
      put_v(raw);
      __syncthreads();
      const std::uint32_t next = first + kPartKeys;
      if (next < keys.most) fetch_v(next / kPartKeys, n_blocks, raw);
      if (first == 0) add_weights();
      const std::uint32_t last = min(next, keys.most), all = max(first, min(keys.least, last));
      add_values<false>(first, first, all, o);
      if (all < last) add_values<true>(first, all, last, o);
      __syncthreads();
    }
    merge_weights(split);
    __syncthreads();
    merge_values(split, o);
  }

  // All rows of the tile, by streams.
  __device__ __forceinline__ void run_streams() const {
    for (std::uint32_t begin = first_row; begin < end_row;) {
      std::uint32_t end = begin + 1, most = args.n_keys[begin];
      for (; end < end_row && args.streams[end] == args.streams[begin]; ++end) most = max(most, args.n_keys[end]);
      if (whole) {
        for (std::uint32_t split = 0; split * kKeys < most; ++split) run(split, begin, end);
      } else {
        run(blockIdx.y, begin, end);
      }
      begin = end;
    }
  }
};

// Grid: (KV heads * tiles of rows, splits or 1). The last rows have most keys, so they begin.
template <class Stored, std::uint32_t kDim>
__global__ void __launch_bounds__(kThreads, sizeof(Stored) == 2 ? 2 : 1)
    attend_prompt(const AttentionArgs args, std::uint32_t tile_rows, bool whole) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  let_next_begin();
  wait_for_previous();
  const std::uint32_t n_kv_heads = args.cache.n_kv_heads, tile = gridDim.x / n_kv_heads - 1 - blockIdx.x / n_kv_heads;
  const std::uint32_t first_row = tile * tile_rows;
  const Prompt<Stored, kDim> prompt{args,
                                    *reinterpret_cast<Shared*>(memory),
                                    blockIdx.x % n_kv_heads,
                                    args.n_heads / n_kv_heads,
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
