#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/q4_0/block.h"
#include "kernels/cpu/q4_0/q4_0.h"

namespace terrace::kernels {
namespace {

struct Q4_0 {
  using Block = BlockQ4_0;
  using XBlock = BlockA8x32;
  using Sums = Nothing;
  using Head = Nothing;
  using Slice = __m256i;  // codes 0..15; the weight is code - 8
  static constexpr int kSteps = 1;
  static constexpr bool kHasMin = false;

  static Sums sum_x(const XBlock&) { return {}; }
  static Head head(const Block&) { return {}; }
  static __m256i start(const Head&, const Sums&) { return _mm256_setzero_si256(); }

  static Slice slice(const Block& block, const Head&, int) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.nibbles));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_srli_epi16(low, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
  }

  // Pairs of code * x minus pairs of 8 * x, which are pairs of (code - 8) * x. Any sum over a block is at most
  // 32 * 8 * 127 = 32512 in magnitude: int16 lanes hold them all.
  static __m256i add(__m256i, const Slice& codes, const XBlock& x, int) {
    const __m256i q = load_bytes(x.q);
    return _mm256_sub_epi16(_mm256_maddubs_epi16(codes, q), _mm256_maddubs_epi16(_mm256_set1_epi8(8), q));
  }

  static __m128i totals(const __m256i sum[4]) {
    const __m256i pairs = _mm256_hadd_epi16(_mm256_hadd_epi16(sum[0], sum[1]), _mm256_hadd_epi16(sum[2], sum[3]));
    const __m128i halves = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    return _mm_madd_epi16(halves, _mm_set1_epi16(1));
  }
};

}  // namespace

void dot_rows_q4_0_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q4_0>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
