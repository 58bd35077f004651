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
  using Sums = NoSums;
  static constexpr bool kHasMin = false;

  using Weights = __m256i;  // codes 0..15; the weight is code - 8

  static Sums sum_x(const XBlock&) { return {}; }

  static Weights unpack(const Block& block) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.nibbles));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_srli_epi16(low, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
  }

  // Pairs of code * x minus pairs of 8 * x: at most 2 * 15 * 127 + 2 * 8 * 127 in magnitude, far from the int16 limit.
  static __m256i dot(const Weights& codes, const XBlock& x, const Sums&) {
    const __m256i q = load_bytes(x.q);
    const __m256i pairs =
        _mm256_sub_epi16(_mm256_maddubs_epi16(codes, q), _mm256_maddubs_epi16(_mm256_set1_epi8(8), q));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};

}  // namespace

void dot_rows_q4_0_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q4_0>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
