#include <immintrin.h>

#include "kernels/cpu/avx512_k_types.h"
#include "kernels/cpu/q4_k/block.h"
#include "kernels/cpu/q4_k/q4_k.h"

namespace terrace::kernels {
namespace {

struct Q4K : KTypeWithMins<Q4K, BlockQ4K> {
  static CodesWithMins unpack(const BlockQ4K& block, const HeadWithMins& head, int b) {
    const __m512i nibble = every_byte(15);
    const __m512i first = load_line(block.nibbles[0]), second = load_line(block.nibbles[2]);
    const __m512i halves_0 = _mm512_shuffle_i32x4(first, second, 0x88);  // bytes 0..15 of each 32
    const __m512i halves_1 = _mm512_shuffle_i32x4(first, second, 0xdd);
    return {{_mm512_and_si512(halves_0, nibble), _mm512_and_si512(halves_1, nibble),
             _mm512_and_si512(_mm512_srli_epi16(halves_0, 4), nibble),
             _mm512_and_si512(_mm512_srli_epi16(halves_1, 4), nibble)},
            scales(head, b)};
  }
};

}  // namespace

void dot_rows_q4_k_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q4K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
