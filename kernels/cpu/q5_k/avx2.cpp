#include <immintrin.h>

#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/avx2_k_types.h"
#include "kernels/cpu/q5_k/block.h"
#include "kernels/cpu/q5_k/q5_k.h"

namespace terrace::kernels {
namespace {

struct Q5K : KTypeWithMins {
  using Block = BlockQ5K;

  // Sub-blocks 2 * step and 2 * step + 1; codes are 0..31.
  static Slice slice(const Block& block, const Head& head, int step) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i bytes = load_bytes(block.nibbles[step]);
    const __m256i high = load_bytes(block.high);
    const __m256i low_0 = _mm256_and_si256(bytes, nibble);
    const __m256i low_1 = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    return {
        {_mm256_or_si256(low_0, move_bit(high, 2 * step, 4)), _mm256_or_si256(low_1, move_bit(high, 2 * step + 1, 4))},
        {head.scale(2 * step), head.scale(2 * step + 1)}};
  }
};

}  // namespace

void dot_rows_q5_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q5K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
