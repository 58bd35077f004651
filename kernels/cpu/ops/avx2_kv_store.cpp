#include <string.h>

#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {
namespace {

constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

inline __m128i to_f16(const float* x) { return _mm256_cvtps_ph(_mm256_loadu_ps(x), kNearestEven); }

}  // namespace

// head_dim and value_dim are multiples of 8.
void store_k(const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block) {
  if (type == KvType::kF32) {
    auto* column = reinterpret_cast<float*>(block) + slot;
    for (std::size_t d = 0; d < head_dim; ++d) column[d * kKvBlockPositions] = k[d];
    return;
  }
  auto* column = reinterpret_cast<std::uint16_t*>(block) + slot;
  for (std::size_t d = 0; d < head_dim; d += kWidth) {
    alignas(16) std::uint16_t halves[kWidth];
    _mm_store_si128(reinterpret_cast<__m128i*>(halves), to_f16(k + d));
    for (std::size_t i = 0; i < kWidth; ++i) column[(d + i) * kKvBlockPositions] = halves[i];
  }
}

void store_v(const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block) {
  if (type == KvType::kF32) {
    memcpy(block + slot * value_dim * sizeof(float), v, value_dim * sizeof(float));
    return;
  }
  auto* row = reinterpret_cast<std::uint16_t*>(block) + slot * value_dim;
  for (std::size_t d = 0; d < value_dim; d += kWidth)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + d), to_f16(v + d));
}

bool storable(const float* x, std::size_t n, KvType type) {
  if (type == KvType::kF32) return all_finite(x, n);
  const __m256 limit = _mm256_set1_ps(kF16Overflow);
  __m256 bad = _mm256_setzero_ps();
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __m256 values = n - i >= kWidth ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, first_lanes(n - i));
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(absolute(values), limit, _CMP_NLT_UQ));  // also true for a NaN
  }
  return _mm256_movemask_ps(bad) == 0;
}

}  // namespace terrace::kernels::avx2
