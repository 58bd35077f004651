#include <immintrin.h>

#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/avx2_k_types.h"
#include "kernels/cpu/q6_k/block.h"
#include "kernels/cpu/q6_k/q6_k.h"

namespace terrace::kernels {
namespace {

struct Q6K : KTypeWithOffset<5> {
  using Block = BlockQ6K;

  static Head head(const Block& block) {
    const __m128i even_then_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.scale));
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, even_then_odd));
  }

  // Step 2h + k: values 64k..64k+63 of half h; codes are 0..63.
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
};

}  // namespace

void dot_rows_q6_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q6K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
