#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {
namespace {

inline __m256 silu8(__m256 g) {
  const __m256 negated = _mm256_xor_ps(g, _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(negated)));
}

}  // namespace

bool all_finite(const float* x, std::size_t n) {
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __m256i bits = n - i >= kWidth
                             ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))
                             : _mm256_maskload_epi32(reinterpret_cast<const int*>(x + i), first_lanes(n - i));
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
  }
  return _mm256_testz_si256(bad, bad) != 0;
}

// The value first, then where it stands: two passes without a branch that depends on it.
std::size_t largest(const float* x, std::size_t n) {
  std::size_t i = 0;
  float best = x[0];
  if (n >= kWidth) {
    __m256 lanes = _mm256_loadu_ps(x);
    for (i = kWidth; i + kWidth <= n; i += kWidth) lanes = _mm256_max_ps(lanes, _mm256_loadu_ps(x + i));
    best = largest_lane(lanes);
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  const __m256 wanted = _mm256_set1_ps(best);
  for (i = 0; i + kWidth <= n; i += kWidth) {
    const int equal = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_EQ_OQ));
    if (equal != 0) return i + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(equal)));
  }
  while (i + 1 < n && x[i] != best) ++i;
  return i;
}

void add(float* x, const float* y, std::size_t n) {
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  for (; i < n; ++i) x[i] += y[i];
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* h) {
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    _mm256_storeu_ps(h + i, _mm256_mul_ps(silu8(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
  if (i == n) return;
  const __m256i rest = first_lanes(n - i);
  const __m256 product = _mm256_mul_ps(silu8(_mm256_maskload_ps(gate + i, rest)), _mm256_maskload_ps(up + i, rest));
  _mm256_maskstore_ps(h + i, rest, product);
}

void exp(const float* x, std::size_t n, float* y) {
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) _mm256_storeu_ps(y + i, exp8(_mm256_loadu_ps(x + i)));
  if (i == n) return;
  const __m256i rest = first_lanes(n - i);
  _mm256_maskstore_ps(y + i, rest, exp8(_mm256_maskload_ps(x + i, rest)));
}

void silu(const float* x, std::size_t n, float* y) {
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) _mm256_storeu_ps(y + i, silu8(_mm256_loadu_ps(x + i)));
  if (i == n) return;
  const __m256i rest = first_lanes(n - i);
  _mm256_maskstore_ps(y + i, rest, silu8(_mm256_maskload_ps(x + i, rest)));
}

}  // namespace terrace::kernels::avx2
