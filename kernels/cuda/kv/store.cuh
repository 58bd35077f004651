// Writing one position of the KV cache, for the kernels that do.
#pragma once

#include "kernels/cpu/ops/constants.h"
#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/kv/kv.h"

namespace terrace::kernels::cuda {

__device__ __forceinline__ void store(std::byte* block, std::size_t index, KvType type, float value) {
  if (type == KvType::kF16) {
    reinterpret_cast<__half*>(block)[index] = __float2half_rn(value);
  } else {
    reinterpret_cast<float*>(block)[index] = value;
  }
}

__device__ __forceinline__ bool storable(float value, KvType type) {
  return type == KvType::kF16 ? fabsf(value) < kF16Overflow : is_finite(value);  // a NaN compares false
}

// A position of one KV head.
struct KvPlace {
  std::size_t at;      // bytes from the cache's begin to the head's block, for one value of a position
  std::uint32_t slot;  // of the block

  __device__ __forceinline__ void store_k(const KvCache& cache, std::uint32_t d, float value) const {
    store(cache.k + at * cache.head_dim, d * kKvBlockPositions + slot, cache.type, value);
  }
  __device__ __forceinline__ void store_v(const KvCache& cache, std::uint32_t d, float value) const {
    store(cache.v + at * cache.value_dim, slot * cache.value_dim + d, cache.type, value);
  }
};

__device__ __forceinline__ KvPlace kv_place(const KvCache& cache, std::uint32_t stream, std::uint32_t position,
                                            std::uint32_t kv_head) {
  const std::uint32_t block =
      cache.block_tables[std::size_t{stream} * cache.table_stride + position / kKvBlockPositions];
  return {(std::size_t{block} * cache.n_kv_heads + kv_head) * kKvBlockPositions * bytes(cache.type),
          static_cast<std::uint32_t>(position % kKvBlockPositions)};
}

}  // namespace terrace::kernels::cuda
