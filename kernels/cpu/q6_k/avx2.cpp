#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/q6_k/block.h"
#include "kernels/cpu/q6_k/q6_k.h"

namespace terrace::kernels {
namespace {

struct Q6K {
  using Block = BlockQ6K;
  using XBlock = BlockA8x256;
  using Sums = __m256i;  // int16: the sum of each 16 values of x; even groups in the low half, odd ones in the high
  static constexpr bool kHasMin = false;

  struct Weights {
    __m256i code[8];   // 0..63, of values 32j..32j+31; the weight is code - 32
    __m256i scale[8];  // int16 of the two groups of 16: 2j in the low half, 2j + 1 in the high
    __m256i scales;    // all 16 as int16, in the order of Sums
  };

  static Sums sum_x(const XBlock& x) {
    __m256i sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = sum_fours(load_bytes(x.q + 32 * j));
    // The adds stay within 128-bit halves, which are the groups of 16.
    const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
    const __m256i second = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[4], sum[5]), _mm256_hadd_epi32(sum[6], sum[7]));
    return _mm256_packs_epi32(first, second);
  }

  static Weights unpack(const Block& block) {
    Weights w;
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i two_bits = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i low_0 = load_bytes(block.low[h][0]);
      const __m256i low_1 = load_bytes(block.low[h][1]);
      const __m256i high = load_bytes(block.high[h]);
      const auto code = [&](__m256i low, __m256i high_in_place) {
        return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high_in_place, two_bits));
      };
      w.code[4 * h] = code(low_0, _mm256_slli_epi16(high, 4));
      w.code[4 * h + 1] = code(low_1, _mm256_slli_epi16(high, 2));
      w.code[4 * h + 2] = code(_mm256_srli_epi16(low_0, 4), high);
      w.code[4 * h + 3] = code(_mm256_srli_epi16(low_1, 4), _mm256_srli_epi16(high, 2));
    }
    const __m128i even_then_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.scale));
    w.scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, even_then_odd));
    const __m256i twice[2] = {_mm256_unpacklo_epi16(w.scales, w.scales), _mm256_unpackhi_epi16(w.scales, w.scales)};
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      w.scale[4 * h] = _mm256_shuffle_epi32(twice[h], 0x00);
      w.scale[4 * h + 1] = _mm256_shuffle_epi32(twice[h], 0x55);
      w.scale[4 * h + 2] = _mm256_shuffle_epi32(twice[h], 0xaa);
      w.scale[4 * h + 3] = _mm256_shuffle_epi32(twice[h], 0xff);
    }
    return w;
  }

  // sum scale * code * x, less 32 * sum scale * (sum of x). Two products are at most 2 * 63 * 127 = 16002; a lane of
  // the scaled sums stays below 2^26, a lane of the correction below 2^25.
  static __m256i dot(const Weights& w, const XBlock& x, const Sums& sums) {
    __m256i sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(_mm256_madd_epi16(w.scales, sums), 5));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i pairs = _mm256_maddubs_epi16(w.code[j], load_bytes(x.q + 32 * j));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, w.scale[j]));
    }
    return sum;
  }
};

}  // namespace

void dot_rows_q6_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q6K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
