#include <immintrin.h>

#include "kernels/cpu/avx512_a8_32.h"
#include "kernels/cpu/q8_0/block.h"
#include "kernels/cpu/q8_0/q8_0.h"

namespace terrace::kernels {
namespace {

struct Q8_0 : TypeOf32<Q8_0, BlockQ8_0, 128> {
  struct Codes {
    __m512i code[2];
  };
  // q + 128 is q with its sign bit turned: vpdpbusd wants the weights unsigned.
  [[gnu::always_inline]] static Codes unpack(const BlockQ8_0* w, int n) {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    return {{_mm512_xor_si512(load_quarters(w->q, sizeof(BlockQ8_0), n), sign),
             _mm512_xor_si512(load_quarters(w->q + 16, sizeof(BlockQ8_0), n), sign)}};
  }
};

}  // namespace

void dot_rows_q8_0_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q8_0>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
