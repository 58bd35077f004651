// What a thread block of prompt.cu is made of: its sizes, what each thread has of them, and the parts of K and V that
// it brings from the cache.
#pragma once

#include "kernels/cuda/attention/partials.cuh"
#include "kernels/cuda/attention/plan.h"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kQueries = kPromptQueries, kKeys = kPromptKeys, kPart = kPromptPart;
inline constexpr std::uint32_t kThreads = 128, kWarps = kThreads / 32;
inline constexpr std::uint32_t kSplitBlocks = kSplitPositions / kKvBlockPositions;
inline constexpr std::uint32_t kWarpKeys = kKeys / kWarps;  // of scores
// Between a thread's groups of four queries, and of four keys or dimensions.
inline constexpr std::uint32_t kQueryFours = 16, kKeyFours = 32;

// The calling thread. Its number is read anew by each phase: what follows of it would otherwise be made once, held in
// registers through all of them, and leave too few for what is on its way.
struct Me {
  std::uint32_t number;
  static __device__ __forceinline__ Me now() {
    Me me;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(me.number));
    return me;
  }
  __device__ __forceinline__ std::uint32_t lane() const { return number % 32; }
  __device__ __forceinline__ std::uint32_t warp() const { return number / 32; }
  // Of scores: this thread's queries, and the first of its keys.
  __device__ __forceinline__ std::uint32_t query(std::uint32_t i) const {
    return lane() % 4 * 4 + i % 4 + i / 4 * kQueryFours;
  }
  __device__ __forceinline__ std::uint32_t own_key() const { return warp() * kWarpKeys + lane() / 4 * 4; }
  __device__ __forceinline__ std::uint32_t key(std::uint32_t j) const { return own_key() + j % 4 + j / 4 * kKeyFours; }
  // Of the softmax it has a query and four of each eight keys: lanes of the sum that are neighbours lie in it, and
  // another thread of the warp has the others.
  __device__ __forceinline__ std::uint32_t weighed_query() const { return warp() * kLanes + lane() % kLanes; }
  __device__ __forceinline__ std::uint32_t weighed_half() const { return lane() / kLanes * 4; }
  // Of values: its queries (the first four of them, and four that lie 16 further).
  __device__ __forceinline__ std::uint32_t value_query(std::uint32_t i) const {
    return warp() % 2 * 32 + lane() % 4 * 4 + i % 4 + i / 4 * kQueryFours;
  }
};

struct Four {
  float v[4];
};
__device__ __forceinline__ Four load_four(const float* at) {
  const float4 a = *reinterpret_cast<const float4*>(at);
  return {{a.x, a.y, a.z, a.w}};
}
template <int n>
struct Groups {
  float v[4 * n];
};
// Groups of four values that lie `apart`.
template <int n>
__device__ __forceinline__ Groups<n> load_groups(const float* at, std::uint32_t apart) {
  Groups<n> all;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const Four four = load_four(at + i * apart);
#pragma unroll
    for (int j = 0; j < 4; ++j) all.v[4 * i + j] = four.v[j];
  }
  return all;
}

// Where p of key and query lies: four keys on, the halves of 32 queries change places, so that keys which a warp writes
// at once lie in different banks.
__device__ __forceinline__ std::uint32_t turned(std::uint32_t key) { return key / 4 % 2 * kQueryFours; }

// Parts of K and V on their way from the cache to shared memory, where they are f32.
template <class Stored, std::uint32_t kDim>
struct PromptParts {
  static constexpr std::uint32_t kValues = 16 / sizeof(Stored);        // of one load
  static constexpr std::uint32_t kLoads = kPart / kValues / kThreads;  // of a thread, for a part
  static constexpr std::uint32_t kDims = kPart / kPromptKeys;          // of K
  static constexpr std::uint32_t kKeys = kPart / kDim;                 // of V
  struct Raw {
    uint4 v[kLoads];
  };
  const KvCache& cache;
  const std::uint32_t (&blocks)[2][kSplitBlocks];  // in the cache, of even and odd splits

  // Block `b` of a split in the cache.
  __device__ __forceinline__ const Stored* in_cache(const std::byte* base, std::uint32_t split, std::uint32_t b) const {
    return reinterpret_cast<const Stored*>(base) + std::size_t{blocks[split % 2][b]} * (kKvBlockPositions * kDim);
  }
  // Dimensions [kDims * part, ...) of all keys, or keys [kKeys * part, ...).
  __device__ __forceinline__ void fetch_k(std::uint32_t split, std::uint32_t part, Raw& raw) const {
    const Me me = Me::now();
    constexpr std::uint32_t kOfBlock = kDims * kKvBlockPositions;  // values
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t at = (me.number + j * kThreads) * kValues;
      raw.v[j] =
          *reinterpret_cast<const uint4*>(in_cache(cache.k, split, at / kOfBlock) + part * kOfBlock + at % kOfBlock);
    }
  }
  __device__ __forceinline__ void fetch_v(std::uint32_t split, std::uint32_t part, Raw& raw) const {
    const Me me = Me::now();
    constexpr std::uint32_t kOfBlock = kKvBlockPositions * kDim;
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t at = part * kPart + (me.number + j * kThreads) * kValues;
      raw.v[j] = *reinterpret_cast<const uint4*>(in_cache(cache.v, split, at / kOfBlock) + at % kOfBlock);
    }
  }
  static __device__ __forceinline__ void widen(const uint4& raw, float* to) {
    const std::uint32_t words[] = {raw.x, raw.y, raw.z, raw.w};
    if constexpr (sizeof(Stored) == sizeof(float)) {
      *reinterpret_cast<uint4*>(to) = raw;
    } else {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float2 a = __half22float2(halves(words[i])), b = __half22float2(halves(words[i + 1]));
        *reinterpret_cast<float4*>(to + 2 * i) = make_float4(a.x, a.y, b.x, b.y);
      }
    }
  }
  static __device__ __forceinline__ __half2 halves(std::uint32_t word) {
    __half2 both;
    memcpy(&both, &word, sizeof both);
    return both;
  }
  static __device__ __forceinline__ void put_k(const Raw& raw, float* part) {
    const Me me = Me::now();
    constexpr std::uint32_t kOfBlock = kDims * kKvBlockPositions;
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t at = (me.number + j * kThreads) * kValues, in_block = at % kOfBlock;
      widen(raw.v[j], part + in_block / kKvBlockPositions * kPromptKeys + at / kOfBlock * kKvBlockPositions +
                          in_block % kKvBlockPositions);
    }
  }
  static __device__ __forceinline__ void put_v(const Raw& raw, float* part) {
    const Me me = Me::now();
#pragma unroll
    for (std::uint32_t j = 0; j < kLoads; ++j) widen(raw.v[j], part + (me.number + j * kThreads) * kValues);
  }
};

}  // namespace terrace::kernels::cuda
