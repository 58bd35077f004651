#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/q8_0/block.h"
#include "kernels/cpu/q8_0/q8_0.h"

namespace terrace::kernels {
namespace {

struct Q8_0 {
  using Block = BlockQ8_0;
  using XBlock = BlockA8x32;
  using Sums = NoSums;
  static constexpr bool kHasMin = false;

  struct Weights {
    __m256i q;
    __m256i magnitude;  // as uint8: 128 for -128
  };

  static Sums sum_x(const XBlock&) { return {}; }

  static Weights unpack(const Block& block) {
    const __m256i q = load_bytes(block.q);
    return {q, _mm256_abs_epi8(q)};
  }

  // |w| times (x with the sign of w): maddubs wants one side unsigned. It adds two products into an int16, at most
  // 2 * 128 * 127 = 32512, so nothing saturates; x is never -128, so its sign can be turned.
  static __m256i dot(const Weights& w, const XBlock& x, const Sums&) {
    const __m256i pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(load_bytes(x.q), w.q));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};

}  // namespace

void dot_rows_q8_0_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q8_0>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
