#include <immintrin.h>

#include "kernels/cpu/avx512_k_types.h"
#include "kernels/cpu/q6_k/block.h"
#include "kernels/cpu/q6_k/q6_k.h"

namespace terrace::kernels {
namespace {

// Vector 2h + g holds values 64g .. 64g + 63 of half h, in order.
struct Q6K : KTypeWithOffset<Q6K, BlockQ6K, 32> {
  static constexpr int kSumShift = 0;
  struct Head {};  // the scales need no unpacking
  static Head heads(const BlockQ6K*, int) { return {}; }

  static __m512i x_vector(const BlockA8x256& x, int p) { return load_line(x.q + 64 * p); }

  static CodesWithOffset unpack(const BlockQ6K& block, const Head&, int) {
    const __m512i nibble = every_byte(15), two_bits = every_byte(0x30);
    // Of 128 values, the first two 32 have their high bits at bits 0 and 2 of the same bytes, the others at 4 and 6.
    const __m512i to_first = per_quarter(4, 4, 2, 2), to_second = per_quarter(0, 0, 30, 30);
    const __m512i scale = load_into_all_quarters(block.scale);
    CodesWithOffset codes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i low = load_line(block.low[half]);
      const __m512i high =
          _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.high[half])));
      codes.code[2 * half] = and_or(low, nibble, _mm512_and_si512(_mm512_rolv_epi32(high, to_first), two_bits));
      codes.code[2 * half + 1] =
          and_or(_mm512_srli_epi16(low, 4), nibble, _mm512_and_si512(_mm512_rolv_epi32(high, to_second), two_bits));
      const int first = 8 * half;
      codes.scale[half] = _mm512_srai_epi16(upper_scales(scale, places(first, first + 1, first + 2, first + 3, 4)), 8);
    }
    return codes;
  }
};

}  // namespace

void dot_rows_q6_k_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q6K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
