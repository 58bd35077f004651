#include "kernels/cuda/kv/store.cuh"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/kv/kv.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 128;

// Grid: (KV heads, rows).
__global__ void append(const KvAppendArgs args) {
  const KvCache& cache = args.cache;
  const std::uint32_t head = blockIdx.x, row = blockIdx.y;
  const KvPlace place = kv_place(cache, args.streams[row], args.positions[row], head);
  bool good = true;
  for (std::uint32_t d = threadIdx.x; d < cache.head_dim; d += kThreads) {
    const float value = args.k[row * args.k_stride + head * cache.head_dim + d];
    good = good && storable(value, cache.type);
    place.store_k(cache, d, value);
  }
  for (std::uint32_t d = threadIdx.x; d < cache.value_dim; d += kThreads) {
    const float value = args.v[row * args.v_stride + head * cache.value_dim + d];
    good = good && storable(value, cache.type);
    place.store_v(cache, d, value);
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
