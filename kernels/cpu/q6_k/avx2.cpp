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
  using Head = __m256i;  // the 16 scales as int16, in the same order
  static constexpr int kSteps = 4;
  static constexpr bool kHasMin = false;

  struct Slice {
    __m256i code[2];   // 0..63; the weight is code - 32
    __m256i scale[2];  // int16 of the two groups of 16 in a code vector
  };

  static Sums sum_x(const XBlock& x) {
    __m256i sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = sum_fours(load_bytes(x.q + 32 * j));
    // The adds stay within 128-bit halves, which are the groups of 16.
    const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
    const __m256i second = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[4], sum[5]), _mm256_hadd_epi32(sum[6], sum[7]));
    return _mm256_packs_epi32(first, second);
  }

  static Head head(const Block& block) {
    const __m128i even_then_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.scale));
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, even_then_odd));
  }

  // The part of code - 32 that has no code: -32 * sum scale * (sum of x); a lane stays below 2^25.
  static __m256i start(const Head& scales, const Sums& sums) {
    const __m256i weighted = _mm256_madd_epi16(scales, sums);
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(weighted, 5));
  }

  // Step 2h + k: values 64k..64k+63 of half h.
  static Slice slice(const Block& block, const Head& scales, int step) {
    const int half = step / 2;
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i two_bits = _mm256_set1_epi8(0x30);
    __m256i low_0 = load_bytes(block.low[half][0]);
    __m256i low_1 = load_bytes(block.low[half][1]);
    const __m256i high = load_bytes(block.high[half]);
    __m256i high_0, high_1;  // bits 4..5 in place, with others around them
    if (step % 2 == 0) {
      high_0 = _mm256_slli_epi16(high, 4);
      high_1 = _mm256_slli_epi16(high, 2);
    } else {
      low_0 = _mm256_srli_epi16(low_0, 4);
      low_1 = _mm256_srli_epi16(low_1, 4);
      high_0 = high;
      high_1 = _mm256_srli_epi16(high, 2);
    }
    return {{_mm256_or_si256(_mm256_and_si256(low_0, nibble), _mm256_and_si256(high_0, two_bits)),
             _mm256_or_si256(_mm256_and_si256(low_1, nibble), _mm256_and_si256(high_1, two_bits))},
            {broadcast_word(scales, 2 * step), broadcast_word(scales, 2 * step + 1)}};
  }

  // Two products are at most 2 * 63 * 127 = 16002, times a scale and in pairs below 2^22, a lane's sum below 2^26.
  static __m256i add(__m256i sum, const Slice& w, const XBlock& x, int step) {
    const __m256i pairs_0 = _mm256_maddubs_epi16(w.code[0], load_bytes(x.q + 64 * step));
    const __m256i pairs_1 = _mm256_maddubs_epi16(w.code[1], load_bytes(x.q + 64 * step + 32));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_0, w.scale[0]));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_1, w.scale[1]));
  }

  static __m128i totals(const __m256i sum[4]) { return sum_each_epi32(sum); }
};

}  // namespace

void dot_rows_q6_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q6K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
