#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/k_scales.h"
#include "kernels/cpu/q4_k/block.h"
#include "kernels/cpu/q4_k/q4_k.h"

namespace terrace::kernels {
namespace {

struct Q4K {
  using Block = BlockQ4K;
  using XBlock = BlockA8x256;
  using Sums = __m128i;  // int16: the sum of each 32 values of x, at most 32 * 127 = 4064 in magnitude
  static constexpr bool kHasMin = true;

  struct Weights {
    __m256i code[8];   // 0..15, of sub-block j
    __m256i scale[8];  // 0..63, in every int16
    __m128i mins;      // int16 each
  };

  static Sums sum_x(const XBlock& x) {
    __m256i sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = sum_fours(load_bytes(x.q + 32 * j));
    return _mm_packs_epi32(sum_each_epi32(sum[0], sum[1], sum[2], sum[3]),
                           sum_each_epi32(sum[4], sum[5], sum[6], sum[7]));
  }

  static Weights unpack(const Block& block) {
    Weights w;
    const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m256i bytes = load_bytes(block.nibbles[k]);
      w.code[2 * k] = _mm256_and_si256(bytes, nibble);
      w.code[2 * k + 1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    }
    const KScales k = unpack_k_scales(block.scales);
    // Each scale twice in 32 bits, through memory: a 32-bit broadcast is then a plain load, which the shuffle unit
    // does not see.
    const __m256i scales = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(k.scale)));
    alignas(32) std::int32_t twice[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(twice), _mm256_or_si256(scales, _mm256_slli_epi32(scales, 16)));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w.scale[j] = _mm256_set1_epi32(twice[j]);
    w.mins = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(k.min)));
    return w;
  }

  // Two products are at most 2 * 15 * 127 = 3810, times a scale and in pairs 480060, over the block 2^25.
  static __m256i dot(const Weights& w, const XBlock& x, const Sums&) {
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i pairs = _mm256_maddubs_epi16(w.code[j], load_bytes(x.q + 32 * j));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, w.scale[j]));
    }
    return sum;
  }

  static __m128i dot_min(const Weights& w, const Sums& sums) { return _mm_madd_epi16(w.mins, sums); }
};

}  // namespace

void dot_rows_q4_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q4K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
