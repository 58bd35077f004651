#include <immintrin.h>

#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/avx2_k_types.h"
#include "kernels/cpu/q3_k/block.h"
#include "kernels/cpu/q3_k/q3_k.h"

namespace terrace::kernels {
namespace {

struct Q3K : KTypeWithOffset<2> {
  using Block = BlockQ3K;

  static Head head(const Block& block) {
    // The last 16 bytes of the block: two others, the packed scales, d. A load that begins with the scales would end
    // beyond the block.
    static_assert(offsetof(Block, scales) == sizeof(Block) - 14);
    const __m128i tail = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&block + 1) - 1);
    // Moved down by a byte, the same places hold the bytes of the odd groups.
    const __m256i bytes = _mm256_setr_m128i(tail, _mm_srli_si128(tail, 1));
    // Each byte alone in an int16 (0x80 gives a zero): scales 0 2 4 6 0 2 4 6, and scales 8 10 8 10 8 10 8 10.
    const __m256i low = _mm256_shuffle_epi8(bytes, _mm256_set1_epi64x(static_cast<long long>(0x8008800680048002)));
    const __m256i high = _mm256_shuffle_epi8(bytes, _mm256_set1_epi32(static_cast<int>(0x800c800a)));
    const __m256i bits_0_to_3 = _mm256_srlv_epi64(low, _mm256_setr_epi64x(0, 4, 0, 4));
    const __m256i bits_4_to_5 = _mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    const __m256i code = _mm256_or_si256(_mm256_and_si256(bits_0_to_3, _mm256_set1_epi16(15)),
                                         _mm256_slli_epi16(_mm256_and_si256(bits_4_to_5, _mm256_set1_epi16(3)), 4));
    return _mm256_sub_epi16(code, _mm256_set1_epi16(32));
  }

  // Step 2h + k: values 64k..64k+63 of half h; codes are 0..7.
  static Slice slice(const Block& block, const Head& scales, int step) {
    const __m256i two_bits = _mm256_set1_epi8(3);
    const __m256i low = _mm256_srli_epi16(load_bytes(block.low[step / 2]), step % 2 * 4);
    const __m256i high = load_bytes(block.high);
    return {{_mm256_or_si256(_mm256_and_si256(low, two_bits), move_bit(high, 2 * step, 2)),
             _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low, 2), two_bits), move_bit(high, 2 * step + 1, 2))},
            {broadcast_word(scales, 2 * step), broadcast_word(scales, 2 * step + 1)}};
  }
};

}  // namespace

void dot_rows_q3_k_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_block_rows<Q3K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
