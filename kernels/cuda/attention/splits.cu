// A thread block takes one split for up to kHeads query heads of one KV head, and one row of q after the other that its
// tile holds. K and V of the split are brought to shared memory first, all copies at once: one row's chains are short,
// so what counts is that nothing waits for memory twice. Scores: a thread to a key, whose 32 neighbours lie side by
// side in the transposed K. Values: a thread to a dimension and one or four heads. Where rows are many a thread takes
// two keys and two dimensions: what it reads of q and p then serves twice.
#include "kernels/cuda/attention/partials.cuh"

#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kFewHeads = 2, kManyHeads = 8;  // of one thread block
constexpr std::uint32_t kPromptRows = 16;               // of a tile
constexpr std::uint32_t kSplitBlocks = kSplitPositions / kKvBlockPositions;

// n neighbouring values, widened.
template <std::uint32_t n, class Stored>
__device__ __forceinline__ void load_widened(const Stored* at, float (&values)[n]) {
  if constexpr (n == 1) {
    values[0] = widened(*at);
  } else if constexpr (sizeof(Stored) == sizeof(float)) {
    const float2 pair = *reinterpret_cast<const float2*>(at);
    values[0] = pair.x;
    values[1] = pair.y;
  } else {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(at));
    values[0] = pair.x;
    values[1] = pair.y;
  }
}

template <std::uint32_t n>
struct alignas(n == 2   ? 8
               : n >= 4 ? 16
                        : 4) Floats {
  float v[n];
};
// n floats at a multiple of 4n (n = 2) or 16 bytes.
template <std::uint32_t n>
__device__ __forceinline__ Floats<n> load(const float* at) {
  Floats<n> values;
  if constexpr (n == 1) {
    values.v[0] = *at;
  } else if constexpr (n == 2) {
    const float2 pair = *reinterpret_cast<const float2*>(at);
    values.v[0] = pair.x;
    values.v[1] = pair.y;
  } else {
#pragma unroll
    for (std::uint32_t i = 0; i < n; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(at + i);
      values.v[i] = four.x;
      values.v[i + 1] = four.y;
      values.v[i + 2] = four.z;
      values.v[i + 3] = four.w;
    }
  }
  return values;
}

// Shared memory of a thread block, in bytes: q (first), p and maxima from a team's begin, the others from the block's;
// K and V only where they are brought there.
struct SharedLayout {
  std::uint32_t p, maxima, team, k, v, total;
};
// How a thread block is made up: teams take a row each, at once; a team's threads take kKeys neighbouring keys each,
// and as many dimensions.
template <std::uint32_t kHeadsOfBlock, std::uint32_t kTeamsOfBlock, std::uint32_t kKeysOfThread>
struct Crew {
  static constexpr std::uint32_t kHeads = kHeadsOfBlock, kTeams = kTeamsOfBlock, kKeys = kKeysOfThread;
  static constexpr std::uint32_t kTeam = kSplitPositions / kKeys;  // threads of a team
  static constexpr std::uint32_t kWarps = kTeam / 32;
};
using DecodeCrew = Crew<kFewHeads, 1, 1>;
using BatchCrew = Crew<kManyHeads, 1, 1>;
using PromptCrew = Crew<kManyHeads, 8, 2>;
using WidePromptCrew = Crew<kManyHeads, 4, 2>;  // for heads that leave no room for eight teams

template <class C>
__host__ __device__ SharedLayout shared_layout(const KvCache& cache, bool staged) {
  SharedLayout at{};
  const auto values = static_cast<std::uint32_t>(kSplitPositions * bytes(cache.type));
  at.p = cache.head_dim * C::kHeads * 4;
  at.maxima = at.p + kSplitPositions * C::kHeads * 4;
  at.team = at.maxima + C::kWarps * C::kHeads * 4;
  at.k = at.team * C::kTeams;
  at.v = at.k + (staged ? cache.head_dim * values : 0);
  at.total = at.v + (staged ? cache.value_dim * values : 0);
  return at;
}

template <class Stored, class C, bool kStaged>
struct Split {
  static constexpr std::uint32_t kHeads = C::kHeads, kKeys = C::kKeys, kTeam = C::kTeam, kWarps = C::kWarps;

  const AttentionArgs& args;
  std::uint32_t split, kv_head, first_head, n_heads;  // first_head and n_heads: of this thread block
  std::uint8_t* shared;
  SharedLayout at;
  std::uint32_t* blocks;  // shared memory [kSplitBlocks]: of this split, of the current stream

  // Brings the table of the first `n_blocks` blocks of a row's split. All threads, which are done with the one before.
  __device__ __forceinline__ void look_at(std::uint32_t row, std::uint32_t first_key, std::uint32_t n_blocks) const {
    const std::uint32_t* table = args.cache.block_tables + std::size_t{args.streams[row]} * args.cache.table_stride +
                                 first_key / kKvBlockPositions;
    if (threadIdx.x < n_blocks) blocks[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
  }
  static __device__ __forceinline__ std::uint32_t me() { return threadIdx.x % kTeam; }
  __device__ __forceinline__ std::uint8_t* mine() const { return shared + threadIdx.x / kTeam * at.team; }
  __device__ __forceinline__ float* q() const { return reinterpret_cast<float*>(mine()); }         // [head_dim, kHeads]
  __device__ __forceinline__ float* p() const { return reinterpret_cast<float*>(mine() + at.p); }  // [256, kHeads]
  __device__ __forceinline__ float* maxima() const {
    return reinterpret_cast<float*>(mine() + at.maxima);
  }  // [kWarps, kHeads]

  __device__ __forceinline__ const Stored* in_cache(const std::byte* base, std::uint32_t block,
                                                    std::uint32_t width) const {
    const std::size_t place = std::size_t{blocks[block]} * args.cache.n_kv_heads + kv_head;
    return reinterpret_cast<const Stored*>(base) + place * kKvBlockPositions * width;
  }
  // Block `block` of the split: K [head_dim, 32] or V [32, value_dim].
  __device__ __forceinline__ const Stored* k_block(std::uint32_t block) const {
    if constexpr (!kStaged) return in_cache(args.cache.k, block, args.cache.head_dim);
    return reinterpret_cast<const Stored*>(shared + at.k) + block * kKvBlockPositions * args.cache.head_dim;
  }
  __device__ __forceinline__ const Stored* v_block(std::uint32_t block) const {
    if constexpr (!kStaged) return in_cache(args.cache.v, block, args.cache.value_dim);
    return reinterpret_cast<const Stored*>(shared + at.v) + block * kKvBlockPositions * args.cache.value_dim;
  }

  static __device__ __forceinline__ std::uint32_t blocks_of(std::uint32_t n_keys) {
    return (n_keys + kKvBlockPositions - 1) / kKvBlockPositions;
  }
  // Starts the copies of blocks [first, end), K and then V, as a group each: scores wait for the first alone.
  __device__ __forceinline__ void stage(std::uint32_t first, std::uint32_t end) const {
    for (std::uint32_t b = first; b < end; ++b)
      copy(k_block(b), in_cache(args.cache.k, b, args.cache.head_dim), args.cache.head_dim);
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (std::uint32_t b = first; b < end; ++b)
      copy(v_block(b), in_cache(args.cache.v, b, args.cache.value_dim), args.cache.value_dim);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void copy(const Stored* to, const Stored* from, std::uint32_t width) const {
    constexpr std::uint32_t kValues = 16 / sizeof(Stored);
    for (std::uint32_t i = threadIdx.x * kValues; i < kKvBlockPositions * width; i += blockDim.x * kValues)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<std::uint32_t>(__cvta_generic_to_shared(to + i))),
                   "l"(from + i)
                   : "memory");
  }

  __device__ __forceinline__ void load_q(std::uint32_t row) const {
    const std::uint32_t head_dim = args.cache.head_dim;
    const float* from = args.q + row * args.q_stride + std::size_t{first_head} * head_dim;
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h)
      for (std::uint32_t d = me(); d < head_dim; d += kTeam)
        q()[d * kHeads + h] = h < n_heads ? from[h * head_dim + d] : 0.0f;
  }

  // s of this thread's keys; a key behind the row's last has -infinity, which enters only the maximum.
  struct Scores {
    Floats<kHeads> of[kKeys];
  };
  __device__ __forceinline__ Scores scores(std::uint32_t n_keys) const {
    Scores s{};
    const std::uint32_t key = me() * kKeys;
    if (key < n_keys) dot_keys(key, s);
#pragma unroll
    for (std::uint32_t i = 0; i < kKeys; ++i)
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; ++h)
        s.of[i].v[h] = key + i < n_keys ? s.of[i].v[h] * args.scale : -__int_as_float(0x7f800000);
    return s;
  }
  __device__ __forceinline__ void dot_keys(std::uint32_t key, Scores& s) const {
    const Stored* k = k_block(key / kKvBlockPositions) + key % kKvBlockPositions;
    const int head_dim = static_cast<int>(args.cache.head_dim);
#pragma unroll 8
    for (int d = 0; d < head_dim; ++d) {
      float kd[kKeys];
      load_widened<kKeys>(k + d * static_cast<int>(kKvBlockPositions), kd);
      const Floats<kHeads> qd = load<kHeads>(q() + d * kHeads);
#pragma unroll
      for (std::uint32_t i = 0; i < kKeys; ++i)
#pragma unroll
        for (std::uint32_t h = 0; h < kHeads; ++h) s.of[i].v[h] = fused(kd[i], qd.v[h], s.of[i].v[h]);
    }
  }

  __device__ __forceinline__ Floats<kHeads> largest(const Scores& scores) const {
    Floats<kHeads> s = scores.of[0];
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
      for (std::uint32_t i = 1; i < kKeys; ++i) s.v[h] = fmaxf(s.v[h], scores.of[i].v[h]);
#pragma unroll
      for (int apart = 1; apart < 32; apart *= 2) s.v[h] = fmaxf(s.v[h], __shfl_xor_sync(~0u, s.v[h], apart));
      if (me() % 32 == 0) maxima()[me() / 32 * kHeads + h] = s.v[h];
    }
    __syncthreads();
    Floats<kHeads> max = load<kHeads>(maxima());
#pragma unroll
    for (std::uint32_t warp = 1; warp < kWarps; ++warp) {
      const Floats<kHeads> other = load<kHeads>(maxima() + warp * kHeads);
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; ++h) max.v[h] = fmaxf(max.v[h], other.v[h]);
    }
    return max;
  }

  // p of this thread's keys to shared memory; their sums in 16 lanes by position; maxima and sums to the results.
  __device__ __forceinline__ void weigh(std::uint32_t row, std::uint32_t n_keys, const Scores& s,
                                        const Floats<kHeads>& max) const {
    constexpr std::uint32_t kStore = kHeads == kFewHeads ? kFewHeads : 4;  // floats of one store
#pragma unroll
    for (std::uint32_t i = 0; i < kKeys; ++i)
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; h += kStore) {
        Floats<kStore> weights;
#pragma unroll
        for (std::uint32_t n = 0; n < kStore; ++n) weights.v[n] = exp_exact(s.of[i].v[h + n] - max.v[h + n]);
        *reinterpret_cast<Floats<kStore>*>(p() + (me() * kKeys + i) * kHeads + h) = weights;
      }
    if constexpr (kStaged) asm volatile("cp.async.wait_group 0;" ::: "memory");  // V
    __syncthreads();
    if (me() >= kHeads * kLanes) return;
    const std::uint32_t h = me() / kLanes, own = me() % kLanes;
    const int n = own < n_keys ? static_cast<int>((n_keys - own + kLanes - 1) / kLanes) : 0;
    float lane = 0.0f;
#pragma unroll 8
    for (int i = 0; i < n; ++i) lane = lane + p()[(own + i * kLanes) * kHeads + h];
    const float sum = sum_of_lanes(lane);
    if (own != 0 || h >= n_heads || n_keys == 0) return;
    float own_max = max.v[0];
#pragma unroll
    for (std::uint32_t i = 1; i < kHeads; ++i) own_max = h == i ? max.v[i] : own_max;
    float* out = partial(args, splits_of(args), row, first_head + h, split) + args.cache.value_dim;
    out[0] = own_max;
    out[1] = sum;
  }

  __device__ __forceinline__ void add_values(std::uint32_t row, std::uint32_t n_keys) const {
    constexpr std::uint32_t kOwn = kHeads == kFewHeads ? 1 : 4;  // heads of a thread
    constexpr std::uint32_t kDims = kKeys;
    const std::uint32_t value_dim = args.cache.value_dim, n_dims = value_dim / kDims;
    for (std::uint32_t item = me(); item < n_dims * (kHeads / kOwn); item += kTeam) {
      const std::uint32_t d = item % n_dims * kDims, first = item / n_dims * kOwn;
      Floats<kOwn> o[kDims] = {};
      for (std::uint32_t start = 0; start < n_keys; start += kKvBlockPositions)
        add_block(v_block(start / kKvBlockPositions) + d, p() + start * kHeads + first,
                  min(static_cast<std::uint32_t>(kKvBlockPositions), n_keys - start), o);
#pragma unroll
      for (std::uint32_t h = 0; h < kOwn; ++h)
#pragma unroll
        for (std::uint32_t i = 0; i < kDims; ++i)
          if (first + h < n_heads && n_keys > 0)
            partial(args, splits_of(args), row, first_head + first + h, split)[d + i] = o[i].v[h];
    }
  }
  template <std::uint32_t kOwn, std::uint32_t kDims>
  __device__ __forceinline__ void add_block(const Stored* v, const float* weights, std::uint32_t n_keys,
                                            Floats<kOwn> (&o)[kDims]) const {
    const int n = static_cast<int>(n_keys), value_dim = static_cast<int>(args.cache.value_dim);
#pragma unroll 8
    for (int t = 0; t < n; ++t) {
      float vd[kDims];
      load_widened<kDims>(v + t * value_dim, vd);
      const Floats<kOwn> w = load<kOwn>(weights + t * static_cast<int>(kHeads));
#pragma unroll
      for (std::uint32_t i = 0; i < kDims; ++i)
#pragma unroll
        for (std::uint32_t h = 0; h < kOwn; ++h) o[i].v[h] = fused(w.v[h], vd[i], o[i].v[h]);
    }
  }

  // n_keys 0: the team only takes part in the barriers.
  __device__ __forceinline__ void run_row(std::uint32_t row, std::uint32_t n_keys) const {
    load_q(row);
    if constexpr (kStaged) asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    const Scores s = scores(n_keys);
    weigh(row, n_keys, s, largest(s));
    add_values(row, n_keys);
  }
};

// Grid: (splits, KV heads * parts of their query heads, tiles of tile_rows rows).
template <class Stored, class C, bool kStaged>
__global__ void __launch_bounds__(C::kTeam* C::kTeams) attend_split(const AttentionArgs args, std::uint32_t tile_rows) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  __shared__ std::uint32_t blocks[kSplitBlocks];
  let_next_begin();
  const std::uint32_t shared_by = args.n_heads / args.cache.n_kv_heads, parts = (shared_by + C::kHeads - 1) / C::kHeads;
  const std::uint32_t kv_head = blockIdx.y / parts, part = blockIdx.y % parts * C::kHeads;
  const std::uint32_t first_key = blockIdx.x * kSplitPositions;
  const std::uint32_t end = min(args.n_rows, (blockIdx.z + 1) * tile_rows);
  Split<Stored, C, kStaged> split{args,
                                  blockIdx.x,
                                  kv_head,
                                  kv_head * shared_by + part,
                                  min(C::kHeads, shared_by - part),
                                  shared,
                                  shared_layout<C>(args.cache, kStaged),
                                  blocks};
  std::uint32_t staged = 0;  // blocks of the only row
  bool looked = false;
  if (kStaged && args.rows_are_alone && tile_rows == 1) {
    const std::uint32_t keys = keys_in_split(args, blockIdx.z, first_key);
    looked = keys > 0;
    if (looked) {
      // The block of the row's own key is written by the kernel before this one.
      const bool has_own = first_key + keys == args.n_keys[blockIdx.z];
      staged = (has_own ? keys - 1 : keys) / kKvBlockPositions;
      split.look_at(blockIdx.z, first_key, split.blocks_of(keys));
      split.stage(0, staged);
    }
  }
  wait_for_previous();
  // Rows of one stream that follow each other share what is staged.
  for (std::uint32_t row = blockIdx.z * tile_rows; row < end;) {
    std::uint32_t last = row, most = keys_in_split(args, row, first_key);
    for (; last + 1 < end && args.streams[last + 1] == args.streams[row]; ++last)
      most = max(most, keys_in_split(args, last + 1, first_key));
    if (most == 0) {
      row = last + 1;
      continue;
    }
    if (!looked) split.look_at(row, first_key, split.blocks_of(most));
    if constexpr (kStaged) split.stage(staged, split.blocks_of(most));
    for (; row <= last; row += C::kTeams) {
      const std::uint32_t own = row + threadIdx.x / C::kTeam;
      split.run_row(min(own, last), own <= last ? keys_in_split(args, own, first_key) : 0);
      __syncthreads();
    }
    row = last + 1;
  }
}

template <class C>
bool fits(const Stream& stream, const KvCache& cache) {
  return shared_layout<C>(cache, true).total + kSplitBlocks * sizeof(std::uint32_t) <=
         stream.card().shared_bytes_per_block;
}

template <class Stored, class C>
void launch_splits(const Stream& stream, const AttentionArgs& args, std::uint32_t tile_rows) {
  const KvCache& cache = args.cache;
  const std::uint32_t parts = divide_up(args.n_heads / cache.n_kv_heads, C::kHeads);
  const dim3 grid(divide_up(args.max_keys, kSplitPositions), cache.n_kv_heads * parts,
                  divide_up(args.n_rows, tile_rows));
  const bool staged = fits<C>(stream, cache);
  const auto kernel = staged ? attend_split<Stored, C, true> : attend_split<Stored, C, false>;
  const std::uint32_t shared_bytes = shared_layout<C>(cache, staged).total;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  launch_overlapped(overlaps_launches(stream.card()), kernel, grid, C::kTeam * C::kTeams, shared_bytes, stream.native(),
                    args, tile_rows);
}

// Few rows: many thread blocks of few heads. Many: tiles of rows that share what is staged.
template <class Stored>
void launch_splits(const Stream& stream, const AttentionArgs& args) {
  const std::uint64_t blocks = std::uint64_t{divide_up(args.max_keys, kSplitPositions)} * args.cache.n_kv_heads *
                               divide_up(args.n_heads / args.cache.n_kv_heads, kManyHeads) * args.n_rows;
  const std::uint64_t multiprocessors = stream.card().multiprocessors;
  if (blocks < 2 * multiprocessors) return launch_splits<Stored, DecodeCrew>(stream, args, 1);
  if (blocks < kPromptRows * multiprocessors) return launch_splits<Stored, BatchCrew>(stream, args, 1);
  if (fits<PromptCrew>(stream, args.cache)) return launch_splits<Stored, PromptCrew>(stream, args, kPromptRows);
  launch_splits<Stored, WidePromptCrew>(stream, args, kPromptRows);
}

}  // namespace

void launch_splits(const Stream& stream, const AttentionArgs& args) {
  if (args.cache.type == KvType::kF16) {
    launch_splits<__half>(stream, args);
  } else {
    launch_splits<float>(stream, args);
  }
}

}  // namespace terrace::kernels::cuda
