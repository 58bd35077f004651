// Conversion between double and int64 by adding 1.5 * 2^52: the integer then stands in the mantissa's low bits.
#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {
namespace {

constexpr std::size_t kDoubles = 4;

// 2^exponent from bits.
inline float power_of_two(int exponent) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((exponent + 127) << 23)));
}
inline __m256d power_of_two4(int exponent) {
  return _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<long long>(exponent + 1023) << 52));
}

inline __m256i round_to_integers(__m256d x) {
  const __m256d magic = _mm256_set1_pd(kRoundToInteger);
  return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(x, magic)), _mm256_castpd_si256(magic));
}

inline __m256d to_doubles(__m256i x) {
  const __m256d magic = _mm256_set1_pd(kRoundToInteger);
  return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_add_epi64(x, _mm256_castpd_si256(magic))), magic);
}

inline __m256i load4(const std::int64_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
inline void store4(std::int64_t* x, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), v); }

// The first n < 4 of four 64-bit lanes.
inline __m256i first_doubles(std::size_t n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n)), _mm256_setr_epi64x(0, 1, 2, 3));
}

struct FixedAdder {
  __m128 weight, limit;
  __m256d unit;
  __m128 bad;

  // Four integers of weight * out.
  __m256i integers(__m128 out) {
    const __m128 t = _mm_mul_ps(weight, out);
    const __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0f), t);
    bad = _mm_or_ps(bad, _mm_cmp_ps(size, limit, _CMP_NLT_UQ));  // also true for a NaN
    return round_to_integers(_mm256_mul_pd(_mm256_cvtps_pd(t), unit));
  }
};

}  // namespace

bool add_fixed(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums) {
  FixedAdder adder{_mm_set1_ps(weight), _mm_set1_ps(power_of_two(kFixedBits - shift)), power_of_two4(shift),
                   _mm_setzero_ps()};
  std::size_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles)
    store4(sums + i, _mm256_add_epi64(load4(sums + i), adder.integers(_mm_loadu_ps(out + i))));
  if (i < n) {
    const __m128 rest = _mm_maskload_ps(out + i, _mm256_castsi256_si128(first_lanes(n - i)));
    const __m256i mask = first_doubles(n - i);
    auto* tail = reinterpret_cast<long long*>(sums + i);
    // A lane without a value adds weight * 0: an error there would be weight's own, which the others have too.
    _mm256_maskstore_epi64(tail, mask, _mm256_add_epi64(_mm256_maskload_epi64(tail, mask), adder.integers(rest)));
  }
  return _mm_movemask_ps(adder.bad) == 0;
}

bool from_fixed(const std::int64_t* sums, std::size_t n, int shift, float* x) {
  const __m256i largest = _mm256_set1_epi64x((1LL << kFixedBits) - 1);
  const __m256i least = _mm256_set1_epi64x(-((1LL << kFixedBits) - 1));
  const __m256d unit = power_of_two4(-shift);
  __m256i bad = _mm256_setzero_si256();
  for (std::size_t i = 0; i < n; i += kDoubles) {
    const bool whole = n - i >= kDoubles;
    const __m256i y = whole ? load4(sums + i)
                            : _mm256_maskload_epi64(reinterpret_cast<const long long*>(sums + i), first_doubles(n - i));
    bad = _mm256_or_si256(bad, _mm256_or_si256(_mm256_cmpgt_epi64(y, largest), _mm256_cmpgt_epi64(least, y)));
    const __m128 values = _mm256_cvtpd_ps(_mm256_mul_pd(to_doubles(y), unit));
    if (whole) {
      _mm_storeu_ps(x + i, values);
    } else {
      _mm_maskstore_ps(x + i, _mm256_castsi256_si128(first_lanes(n - i)), values);
    }
  }
  return _mm256_testz_si256(bad, bad) != 0;
}

}  // namespace terrace::kernels::avx2
