#include <immintrin.h>

#include "kernels/cpu/avx512_k_types.h"
#include "kernels/cpu/q3_k/block.h"
#include "kernels/cpu/q3_k/q3_k.h"

namespace terrace::kernels {
namespace {

// Vector k holds values 32k .. 32k + 31 of both halves.
struct Q3K : KTypeWithOffset<Q3K, BlockQ3K, 4> {
  struct Head {
    alignas(64) std::int8_t scale[kQuadBlocks][16];
  };

  static __m512i x_vector(const BlockA8x256& x, int k) {
    const auto values = [&](int i) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.q + i)); };
    return _mm512_inserti64x4(_mm512_castsi256_si512(values(32 * k)), values(128 + 32 * k), 1);
  }

  [[gnu::always_inline]] static Head heads(const BlockQ3K* w, int n) {
    // The last 16 bytes of each block: two others, the packed scales, d.
    static_assert(offsetof(BlockQ3K, scales) == sizeof(BlockQ3K) - 14);
    const __m512i tail = load_quarters(scale_bytes(w), sizeof(BlockQ3K), n);
    const auto places = [](int b0, int b4, int b8, int b12) { return _mm_setr_epi32(b0, b4, b8, b12); };
    const __m128i low_places = places(0x05040302, 0x09080706, 0x05040302, 0x09080706);
    const __m512i low = _mm512_srlv_epi64(_mm512_shuffle_epi8(tail, _mm512_broadcast_i32x4(low_places)),
                                          _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
    // Bits 4 and 5 of scales 4k .. 4k + 3 are at bits 2k and 2k + 1; what comes from a neighbour is masked.
    const __m512i high =
        _mm512_rolv_epi32(_mm512_shuffle_epi8(tail, _mm512_set1_epi32(0x0d0c0b0a)), _mm512_set4_epi32(30, 0, 2, 4));
    const __m512i code = and_or(low, every_byte(15), _mm512_and_si512(high, every_byte(0x30)));
    Head head;
    _mm512_store_si512(head.scale, _mm512_sub_epi8(code, every_byte(32)));
    return head;
  }

  static CodesWithOffset unpack(const BlockQ3K& block, const Head& head, int b) {
    const __m512i two_bits = every_byte(3), bit = every_byte(4);
    const __m512i low = load_line(block.low);
    const __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.high)));
    const __m512i high = _mm512_srlv_epi32(both, per_quarter(0, 0, 4, 4));  // bit k of either half at bit k
    const __m512i scale = load_into_all_quarters(head.scale[b]);
    return {{and_or(low, two_bits, _mm512_and_si512(_mm512_slli_epi16(high, 2), bit)),
             and_or(_mm512_srli_epi16(low, 2), two_bits, _mm512_and_si512(_mm512_slli_epi16(high, 1), bit)),
             and_or(_mm512_srli_epi16(low, 4), two_bits, _mm512_and_si512(high, bit)),
             and_or(_mm512_srli_epi16(low, 6), two_bits, _mm512_and_si512(_mm512_srli_epi16(high, 1), bit))},
            {scales(scale, places(0, 1, 8, 9, 2)), scales(scale, places(4, 5, 12, 13, 2))}};
  }
};

}  // namespace

void dot_rows_q3_k_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q3K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
