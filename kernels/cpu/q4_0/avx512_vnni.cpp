#include <immintrin.h>

#include "kernels/cpu/avx512_a8_32.h"
#include "kernels/cpu/q4_0/block.h"
#include "kernels/cpu/q4_0/q4_0.h"

namespace terrace::kernels {
namespace {

struct Q4_0 : TypeOf32<Q4_0, BlockQ4_0, 8> {
  struct Codes {
    __m512i code[2];
  };
  [[gnu::always_inline]] static Codes unpack(const BlockQ4_0* w, int n) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i both = load_quarters(w->nibbles, sizeof(BlockQ4_0), n);
    return {{_mm512_and_si512(both, nibble), _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble)}};
  }
};

}  // namespace

void dot_rows_q4_0_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q4_0>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
