// Writing one position of one KV head; block layout in args.h.
#include <cmath>
#include <cstring>

#include "kernels/cpu/ops/scalar.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::scalar {
namespace {

void store(float value, std::size_t index, KvType type, std::byte* block) {
  if (type == KvType::kF32) {
    std::memcpy(block + index * sizeof(float), &value, sizeof(float));
  } else {
    const std::uint16_t half = f16_from_f32(value);
    std::memcpy(block + index * sizeof(half), &half, sizeof(half));
  }
}

}  // namespace

void store_k(const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block) {
  for (std::size_t d = 0; d < head_dim; ++d) store(k[d], d * kKvBlockPositions + slot, type, block);
}

void store_v(const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block) {
  for (std::size_t d = 0; d < value_dim; ++d) store(v[d], slot * value_dim + d, type, block);
}

bool storable(const float* x, std::size_t n, KvType type) {
  if (type == KvType::kF32) return all_finite(x, n);
  for (std::size_t i = 0; i < n; ++i)
    if (!(std::fabs(x[i]) < kF16Overflow)) return false;  // a NaN compares false
  return true;
}

}  // namespace terrace::kernels::scalar
