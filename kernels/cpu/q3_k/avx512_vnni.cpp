#include <immintrin.h>

#include "kernels/cpu/avx512_k_types.h"
#include "kernels/cpu/q3_k/block.h"
#include "kernels/cpu/q3_k/q3_k.h"

namespace terrace::kernels {
namespace {

// Vector k holds values 32k .. 32k + 31 of both halves.
struct Q3K : KTypeWithOffset<Q3K, BlockQ3K, 4> {
  // 256 values of 32 * 4 * 127 times 2^8 are below 2^30.
  static constexpr int kSumShift = 8;
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
    // Codes 0 and 2 in the nibbles of one vector, 1 and 3 of another: their low bits by a shift, their high bits by a
    // table over the four of them.
    const __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.high)));
    const __m512i high = _mm512_and_si512(_mm512_srlv_epi32(both, per_quarter(0, 0, 4, 4)), every_byte(15));
    const __m128i bits_0_and_2 = _mm_setr_epi8(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68);
    const __m128i bits_1_and_3 = _mm_setr_epi8(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68);
    const __m512i low = load_line(block.low), low_bits = every_byte(0x33), code = every_byte(7);
    const __m512i codes_0_and_2 =
        and_or(low, low_bits, _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bits_0_and_2), high));
    const __m512i codes_1_and_3 =
        and_or(_mm512_srli_epi16(low, 2), low_bits, _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bits_1_and_3), high));
    const __m512i scale = load_into_all_quarters(head.scale[b]);
    return {{_mm512_and_si512(codes_0_and_2, code), _mm512_and_si512(codes_1_and_3, code),
             _mm512_and_si512(_mm512_srli_epi16(codes_0_and_2, 4), code),
             _mm512_and_si512(_mm512_srli_epi16(codes_1_and_3, 4), code)},
            {upper_scales(scale, places(0, 1, 8, 9, 2)), upper_scales(scale, places(4, 5, 12, 13, 2))}};
  }
};

}  // namespace

void dot_rows_q3_k_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_block_quads<Q3K>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
