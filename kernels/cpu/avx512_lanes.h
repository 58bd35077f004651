// Sums over the lanes of several vectors at once in AVX-512, the lane tree of docs/numerics.md, and loads of pieces
// that lie apart. For avx512*.cpp only; everything here has internal linkage (float_bits.h says why).
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace terrace::kernels {
namespace {

// A zmm register is four 128-bit quarters of four 32-bit elements.
inline constexpr int kQuarters = 4;

inline __m512i load_line(const void* bytes) { return _mm512_loadu_si512(bytes); }

// 16 bytes, in every quarter.
inline __m512i load_into_all_quarters(const void* bytes) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(bytes)));
}

// 16 bytes from `first`, `first` + stride, ...: one piece a quarter. Quarters from n on are zero; nothing is read for
// them.
[[gnu::always_inline]] inline __m512i load_quarters(const void* first, std::size_t stride, int n) {
  const char* at = static_cast<const char*>(first);
  const auto piece = [&](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + static_cast<std::size_t>(i) * stride));
  };
  __m512i pieces = _mm512_zextsi128_si512(piece(0));
  if (n > 1) pieces = _mm512_inserti32x4(pieces, piece(1), 1);
  if (n > 2) pieces = _mm512_inserti32x4(pieces, piece(2), 2);
  if (n > 3) pieces = _mm512_inserti32x4(pieces, piece(3), 3);
  return pieces;
}

// Element k of each quarter = the sum over the elements of the same quarter of v[k].
inline __m512i sum_elements(const __m512i v[4]) {
  const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i second = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
}

// Quarter k = the sum over the quarters of v[k].
inline __m512i sum_quarters(const __m512i v[4]) {
  const __m512i first =
      _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
  const __m512i second =
      _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88), _mm512_shuffle_i32x4(first, second, 0xdd));
}

// Sixteen f32 lanes: lane[i] + lane[i + 8], then + 4, + 2, + 1.
inline float sum_lanes_avx512(__m512 lanes) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// (a & mask) | b in one instruction.
inline __m512i and_or(__m512i a, __m512i mask, __m512i b) { return _mm512_ternarylogic_epi32(a, mask, b, 0xea); }

}  // namespace
}  // namespace terrace::kernels
