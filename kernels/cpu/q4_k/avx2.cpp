#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/avx2_k_scales.h"
#include "kernels/cpu/q4_k/block.h"
#include "kernels/cpu/q4_k/q4_k.h"

namespace terrace::kernels {
namespace {

struct Q4K {
  using Block = BlockQ4K;
  using XBlock = BlockA8x256;
  using Sums = __m128i;  // int16: the sum of each 32 values of x, at most 32 * 127 = 4064 in magnitude
  using Head = KScalesAvx2;
  static constexpr int kSteps = 4;
  static constexpr bool kHasMin = true;

  struct Slice {
    __m256i code[2];   // 0..15, of sub-blocks 2 * step and 2 * step + 1
    __m256i scale[2];  // 0..63, in every int16
  };

  static Sums sum_x(const XBlock& x) {
    __m256i sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = sum_fours(load_bytes(x.q + 32 * j));
    return _mm_packs_epi32(sum_each_epi32(sum), sum_each_epi32(sum + 4));
  }

  static Head head(const Block& block) { return unpack_k_scales_avx2(&block); }
  static __m256i start(const Head&, const Sums&) { return _mm256_setzero_si256(); }

  static Slice slice(const Block& block, const Head& head, int step) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i bytes = load_bytes(block.nibbles[step]);
    return {{_mm256_and_si256(bytes, nibble), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble)},
            {head.scale(2 * step), head.scale(2 * step + 1)}};
  }

  // Two products are at most 2 * 15 * 127 = 3810, times a scale and in pairs 480060, over the block 2^25.
  static __m256i add(__m256i sum, const Slice& w, const XBlock& x, int step) {
    const __m256i pairs_0 = _mm256_maddubs_epi16(w.code[0], load_bytes(x.q + 64 * step));
    const __m256i pairs_1 = _mm256_maddubs_epi16(w.code[1], load_bytes(x.q + 64 * step + 32));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_0, w.scale[0]));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_1, w.scale[1]));
  }

  static __m128i dot_min(const Head& head, const Sums& sums) { return _mm_madd_epi16(head.mins(), sums); }

  static __m128i totals(const __m256i sum[4]) { return sum_each_epi32(sum); }
};

}  // namespace

void dot_rows_q4_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q4K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
