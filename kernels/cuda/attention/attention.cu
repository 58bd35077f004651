// A block takes one split of one row for up to eight query heads of one KV head. Scores: a thread to a key, whose 32
// neighbours lie side by side in the transposed K. Values: a thread to a dimension and four heads.
#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = kSplitPositions;  // a thread to a key
constexpr std::uint32_t kHeads = 8;                  // of one block
constexpr std::uint32_t kMaxHeadValues = 1024;       // q of a block's heads lies in shared memory

template <class Stored>
__device__ __forceinline__ float widened(const Stored* at) {
  if constexpr (sizeof(Stored) == sizeof(float)) {
    return *at;
  } else {
    return __half2float(*at);
  }
}

// Eight floats at a multiple of 16 bytes.
struct Eight {
  float v[kHeads];
};
__device__ __forceinline__ Eight load8(const float* at) {
  const float4 a = reinterpret_cast<const float4*>(at)[0], b = reinterpret_cast<const float4*>(at)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// A split's results of (row, head): values [value_dim], then max and sum.
__device__ float* partial(const AttentionArgs& args, std::uint32_t row, std::uint32_t head, std::uint32_t split) {
  const std::size_t n_splits = (args.max_keys + kSplitPositions - 1) / kSplitPositions;
  return args.scratch + ((std::size_t{row} * args.n_heads + head) * n_splits + split) * (args.cache.value_dim + 2);
}

template <class Stored>
struct Split {
  const AttentionArgs& args;
  std::uint32_t row, split, kv_head, first_head, n_heads;  // first_head and n_heads: of this block
  std::uint32_t n_keys;                                    // of this split
  const std::uint32_t* blocks;                             // of this split
  float* q;                                                // shared [head_dim, 8]
  float* p;                                                // shared [256, 8]
  float* warp_max;                                         // shared [8 warps, 8]

  __device__ const Stored* block(const std::byte* base, std::uint32_t key, std::uint32_t width) const {
    const std::size_t place = std::size_t{blocks[key / kKvBlockPositions]} * args.cache.n_kv_heads + kv_head;
    return reinterpret_cast<const Stored*>(base) + place * kKvBlockPositions * width;
  }

  __device__ void load_q() const {
    const std::uint32_t head_dim = args.cache.head_dim;
    const float* from = args.q + row * args.q_stride + std::size_t{first_head} * head_dim;
    for (std::uint32_t i = threadIdx.x; i < head_dim * kHeads; i += kThreads) {
      const std::uint32_t h = i / head_dim, d = i % head_dim;
      q[d * kHeads + h] = h < n_heads ? from[h * head_dim + d] : 0.0f;
    }
  }

  // s of this thread's key; a key behind the split's last has -infinity, which enters only the maximum.
  __device__ Eight scores() const {
    Eight s{};
    const std::uint32_t key = threadIdx.x;
    if (key >= n_keys) {
      for (float& value : s.v) value = -__int_as_float(0x7f800000);
      return s;
    }
    const Stored* k = block(args.cache.k, key, args.cache.head_dim) + key % kKvBlockPositions;
#pragma unroll 8
    for (std::uint32_t d = 0; d < args.cache.head_dim; ++d) {
      const float kd = widened(k + d * kKvBlockPositions);
      const Eight qd = load8(q + d * kHeads);
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; ++h) s.v[h] = fused(kd, qd.v[h], s.v[h]);
    }
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) s.v[h] = s.v[h] * args.scale;
    return s;
  }

  __device__ Eight maxima(Eight s) const {
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int apart = 1; apart < 32; apart *= 2) s.v[h] = fmaxf(s.v[h], __shfl_xor_sync(~0u, s.v[h], apart));
      if (threadIdx.x % 32 == 0) warp_max[threadIdx.x / 32 * kHeads + h] = s.v[h];
    }
    __syncthreads();
    Eight max = load8(warp_max);
    for (std::uint32_t warp = 1; warp < kThreads / 32; ++warp) {
      const Eight other = load8(warp_max + warp * kHeads);
#pragma unroll
      for (std::uint32_t h = 0; h < kHeads; ++h) max.v[h] = fmaxf(max.v[h], other.v[h]);
    }
    return max;
  }

  // p of this thread's key to shared memory; the sums in 16 lanes by position; maxima and sums to the partial results.
  __device__ void weigh(const Eight& s, const Eight& max) const {
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) p[threadIdx.x * kHeads + h] = exp_exact(s.v[h] - max.v[h]);
    __syncthreads();
    if (threadIdx.x >= kHeads * kLanes) return;
    const std::uint32_t h = threadIdx.x / kLanes;
    float lane = 0.0f;
    for (std::uint32_t key = threadIdx.x % kLanes; key < n_keys; key += kLanes) lane = lane + p[key * kHeads + h];
    const float sum = sum_of_lanes(lane);
    if (threadIdx.x % kLanes != 0 || h >= n_heads) return;
    float* out = partial(args, row, first_head + h, split) + args.cache.value_dim;
    out[0] = max.v[0];
#pragma unroll
    for (std::uint32_t i = 1; i < kHeads; ++i) out[0] = h == i ? max.v[i] : out[0];
    out[1] = sum;
  }

  __device__ void add_values() const {
    const std::uint32_t value_dim = args.cache.value_dim;
    for (std::uint32_t i = threadIdx.x; i < value_dim * 2; i += kThreads) {
      const std::uint32_t d = i % value_dim, first = i / value_dim * 4;
      float o[4] = {};
      for (std::uint32_t start = 0; start < n_keys; start += kKvBlockPositions) {
        const Stored* v = block(args.cache.v, start, value_dim) + d;
        const std::uint32_t n = min(static_cast<std::uint32_t>(kKvBlockPositions), n_keys - start);
#pragma unroll 8
        for (std::uint32_t t = 0; t < n; ++t) {
          const float vd = widened(v + t * value_dim);
          const float4 w = *reinterpret_cast<const float4*>(p + (start + t) * kHeads + first);
          o[0] = fused(w.x, vd, o[0]);
          o[1] = fused(w.y, vd, o[1]);
          o[2] = fused(w.z, vd, o[2]);
          o[3] = fused(w.w, vd, o[3]);
        }
      }
#pragma unroll
      for (std::uint32_t h = 0; h < 4; ++h)
        if (first + h < n_heads) partial(args, row, first_head + first + h, split)[d] = o[h];
    }
  }
};

// Grid: (splits, KV heads * groups of eight query heads, rows).
template <class Stored>
__global__ void __launch_bounds__(kThreads) attend_split(const AttentionArgs args) {
  extern __shared__ __align__(16) float q[];
  __shared__ __align__(16) float p[kSplitPositions * kHeads];
  __shared__ __align__(16) float warp_max[kThreads / 32 * kHeads];
  const std::uint32_t row = blockIdx.z, first_key = blockIdx.x * kSplitPositions;
  const std::uint32_t row_keys = args.n_keys[row];
  if (first_key >= row_keys) return;
  const std::uint32_t shared_by = args.n_heads / args.cache.n_kv_heads, groups = (shared_by + kHeads - 1) / kHeads;
  const std::uint32_t kv_head = blockIdx.y / groups, part = blockIdx.y % groups * kHeads;
  const std::uint32_t* blocks = args.cache.block_tables + std::size_t{args.streams[row]} * args.cache.table_stride +
                                first_key / kKvBlockPositions;
  const std::uint32_t n_keys = min(static_cast<std::uint32_t>(kSplitPositions), row_keys - first_key);
  const Split<Stored> split{
      args,   row, blockIdx.x, kv_head, kv_head * shared_by + part, min(kHeads, shared_by - part), n_keys,
      blocks, q,   p,          warp_max};
  split.load_q();
  __syncthreads();
  const Eight s = split.scores();
  split.weigh(s, split.maxima(s));
  split.add_values();
}

// o, l and m of one more split, or of the sink, into those before it.
struct Merged {
  float max, sum;
  __device__ void merge(float& o, float other_max, float other_sum, float other_o) {
    const float new_max = fmaxf(max, other_max);
    const float a = exp_exact(max - new_max), b = exp_exact(other_max - new_max);
    max = new_max;
    sum = fused(sum, a, other_sum * b);
    o = fused(o, a, other_o * b);
  }
};

// Grid: (heads, rows); a thread to a dimension.
__global__ void merge_splits(const AttentionArgs args) {
  const std::uint32_t head = blockIdx.x, row = blockIdx.y, value_dim = args.cache.value_dim;
  const std::uint32_t n_splits = (args.n_keys[row] + kSplitPositions - 1) / kSplitPositions;
  for (std::uint32_t d = threadIdx.x; d < value_dim; d += blockDim.x) {
    const float* from = partial(args, row, head, 0);
    Merged state{from[value_dim], from[value_dim + 1]};
    float o = from[d];
    for (std::uint32_t split = 1; split < n_splits; ++split) {
      from += value_dim + 2;
      state.merge(o, from[value_dim], from[value_dim + 1], from[d]);
    }
    if (args.sinks != nullptr) state.merge(o, args.sinks[head], 1.0f, 0.0f);
    args.out[row * args.out_stride + std::size_t{head} * value_dim + d] = o / state.sum;
  }
}

bool is_possible(const AttentionArgs& args) {
  const KvCache& cache = args.cache;
  return args.n_rows > 0 && args.n_rows <= kMaxGridRows && args.max_keys > 0 && cache.n_kv_heads > 0 &&
         args.n_heads > 0 && args.n_heads % cache.n_kv_heads == 0 && args.n_heads <= kMaxGridRows &&
         cache.head_dim > 0 && cache.head_dim <= kMaxHeadValues && cache.value_dim > 0 &&
         args.max_keys <= std::uint64_t{cache.table_stride} * kKvBlockPositions;
}

}  // namespace

std::uint64_t attention_scratch_bytes(std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t value_dim,
                                      std::uint32_t max_keys) {
  return std::uint64_t{n_rows} * n_heads * divide_up(max_keys, kSplitPositions) * (value_dim + 2) * sizeof(float);
}

Status attend(const Stream& stream, const AttentionArgs& args) {
  const KvCache& cache = args.cache;
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows},          {"heads", args.n_heads},
                                                   {"KV heads", cache.n_kv_heads}, {"head values", cache.head_dim},
                                                   {"V values", cache.value_dim},  {"keys at most", args.max_keys}};
  if (!is_possible(args)) return invalid_shape("attention", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const std::uint32_t groups = divide_up(args.n_heads / cache.n_kv_heads, kHeads);
  const dim3 grid(divide_up(args.max_keys, kSplitPositions), cache.n_kv_heads * groups, args.n_rows);
  const std::size_t q_bytes = cache.head_dim * kHeads * sizeof(float);
  if (cache.type == KvType::kF16) {
    attend_split<__half><<<grid, kThreads, q_bytes, stream.native()>>>(args);
  } else {
    attend_split<float><<<grid, kThreads, q_bytes, stream.native()>>>(args);
  }
  merge_splits<<<dim3(args.n_heads, args.n_rows), 128, 0, stream.native()>>>(args);
  return after_launch(stream, "attention", sizes);
}

}  // namespace terrace::kernels::cuda
