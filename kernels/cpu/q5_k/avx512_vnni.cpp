#include <immintrin.h>

#include "kernels/cpu/avx512_k_types.h"
#include "kernels/cpu/q5_k/block.h"
#include "kernels/cpu/q5_k/q5_k.h"

namespace terrace::kernels {
namespace {

struct Q5K : KTypeWithMins<Q5K, BlockQ5K> {
  static CodesWithMins unpack(const BlockQ5K& block, const HeadWithMins& head, int b) {
    const __m512i nibble = every_byte(15), bit = every_byte(16);
    const __m512i first = load_line(block.nibbles[0]), second = load_line(block.nibbles[2]);
    const __m512i low[2] = {_mm512_shuffle_i32x4(first, second, 0x88),  // bytes 0..15 of each 32
                            _mm512_shuffle_i32x4(first, second, 0xdd)};
    // Quarter k wants bits 2k and 2k + 1 at bit 4; what a rotation moves into a byte from its neighbour is masked.
    const __m512i to_even = per_quarter(4, 2, 0, 30), to_odd = per_quarter(3, 1, 31, 29);
    CodesWithMins codes;
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const __m512i high = load_into_all_quarters(block.high + 16 * p);
      codes.code[p] = and_or(low[p], nibble, _mm512_and_si512(_mm512_rolv_epi32(high, to_even), bit));
      codes.code[p + 2] =
          and_or(_mm512_srli_epi16(low[p], 4), nibble, _mm512_and_si512(_mm512_rolv_epi32(high, to_odd), bit));
    }
    codes.scale = scales(head, b);
    return codes;
  }
};

}  // namespace

void dot_rows_q5_k_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q5K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
