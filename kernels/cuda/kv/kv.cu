#include "kernels/cuda/kv/kv.h"

#include "kernels/cpu/ops/constants.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 128;

__device__ void store(std::byte* block, std::size_t index, KvType type, float value) {
  if (type == KvType::kF16) {
    reinterpret_cast<__half*>(block)[index] = __float2half_rn(value);
  } else {
    reinterpret_cast<float*>(block)[index] = value;
  }
}

__device__ bool storable(float value, KvType type) {
  return type == KvType::kF16 ? fabsf(value) < kF16Overflow : is_finite(value);  // a NaN compares false
}

// Grid: (KV heads, rows).
__global__ void append(const KvAppendArgs args) {
  const KvCache& cache = args.cache;
  const std::uint32_t head = blockIdx.x, row = blockIdx.y;
  const std::uint32_t position = args.positions[row], slot = position % kKvBlockPositions;
  const std::uint32_t block =
      cache.block_tables[std::size_t{args.streams[row]} * cache.table_stride + position / kKvBlockPositions];
  const std::size_t place = (std::size_t{block} * cache.n_kv_heads + head) * kKvBlockPositions * bytes(cache.type);
  bool good = true;
  for (std::uint32_t d = threadIdx.x; d < cache.head_dim; d += kThreads) {
    const float value = args.k[row * args.k_stride + head * cache.head_dim + d];
    good = good && storable(value, cache.type);
    store(cache.k + place * cache.head_dim, d * kKvBlockPositions + slot, cache.type, value);
  }
  for (std::uint32_t d = threadIdx.x; d < cache.value_dim; d += kThreads) {
    const float value = args.v[row * args.v_stride + head * cache.value_dim + d];
    good = good && storable(value, cache.type);
    store(cache.v + place * cache.value_dim, slot * cache.value_dim + d, cache.type, value);
  }
  if (!good) args.failed[row] = 1;
}

}  // namespace

Status kv_append(const Stream& stream, const KvAppendArgs& args) {
  const KvCache& cache = args.cache;
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows},
                                                   {"KV heads", cache.n_kv_heads},
                                                   {"head values", cache.head_dim},
                                                   {"V values", cache.value_dim}};
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || cache.n_kv_heads == 0 || cache.head_dim == 0 ||
      cache.value_dim == 0)
    return invalid_shape("writing the KV cache", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  append<<<dim3(cache.n_kv_heads, args.n_rows), kThreads, 0, stream.native()>>>(args);
  return after_launch(stream, "writing the KV cache", sizes);
}

}  // namespace terrace::kernels::cuda
