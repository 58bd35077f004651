// k_scales.h in vectors, for Q4_K and Q5_K. For avx2*.cpp only; internal linkage: float_bits.h says why.
#pragma once

#include <immintrin.h>

namespace terrace::kernels {
namespace {

struct KScalesAvx2 {
  __m256i bytes;  // in each half: scales 0..3, mins 0..3, scales 4..7, mins 4..7

  // Scale `index` in every int16.
  __m256i scale(int index) const {
    const int byte = index < 4 ? index : index + 4;
    return _mm256_shuffle_epi8(bytes, _mm256_set1_epi16(static_cast<short>(0x8000 | byte)));  // 0x80: a zero byte
  }
  // All mins as int16.
  __m128i mins() const {
    const __m128i places = _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1);
    return _mm_shuffle_epi8(_mm256_castsi256_si128(bytes), places);
  }
};

// `block` is a Q4_K or Q5_K block: both begin with d and dmin (4 bytes) and the 12 packed bytes, 16 in all. The four
// 32-bit results are, from the packed words p0 p1 p2:
//   p0 & 3f   p1 & 3f   (p0 >> 2 & 30) | (p2 & 0f)   (p1 >> 2 & 30) | (p2 >> 4 & 0f)      in every byte
inline KScalesAvx2 unpack_k_scales_avx2(const void* block) {
  const __m256i head = _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(block)));
  const __m256i first = _mm256_srlv_epi32(_mm256_shuffle_epi32(head, 0x99), _mm256_setr_epi32(0, 0, 2, 2, 0, 0, 2, 2));
  const __m256i last = _mm256_srlv_epi32(_mm256_shuffle_epi32(head, 0xff), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
  const long long low_mask = 0x3f3f3f3f3f3f3f3f, high_mask = 0x3030303030303030, nibbles = 0x0f0f0f0f0f0f0f0f;
  return {_mm256_or_si256(_mm256_and_si256(first, _mm256_setr_epi64x(low_mask, high_mask, low_mask, high_mask)),
                          _mm256_and_si256(last, _mm256_setr_epi64x(0, nibbles, 0, nibbles)))};
}

}  // namespace
}  // namespace terrace::kernels
