// What Q8_0 and Q4_0 share for avx512_blocks.h: blocks of 32 values with one scale, so that the four blocks of a quad
// fill the quarters of two vectors. For avx512*.cpp only; internal linkage: float_bits.h says why.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx512_blocks.h"

namespace terrace::kernels {
namespace {

struct XQuadA8x32 {
  alignas(64) std::int8_t q[2][64];    // values 0..15 and 16..31; quarter: block
  alignas(64) std::int32_t start[16];  // what the codes' offset takes off each element's eight products
};

// Derived gives
//   struct Codes { __m512i code[2]; }                     unsigned, kOffset more than the weight
//   static Codes unpack(const Block* w, int n)            of the quad's first n blocks
template <class Derived, class BlockType, int kOffset>
struct TypeOf32 {
  using Block = BlockType;
  using XBlock = BlockA8x32;
  using XQuad = XQuadA8x32;
  static constexpr bool kHasMin = false;
  static constexpr int kScaleElement = 0;
  static_assert(offsetof(Block, d) == 0);

  static const void* scale_bytes(const Block* w) { return w; }

  static void prepare(const XBlock* x, int n, XQuad& out) {
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(kOffset));  // as unsigned: up to 128
    const __m512i q[2] = {load_quarters(x->q, sizeof(XBlock), n), load_quarters(x->q + 16, sizeof(XBlock), n)};
    _mm512_store_si512(out.q[0], q[0]);
    _mm512_store_si512(out.q[1], q[1]);
    const __m512i sums = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, q[0]), offset, q[1]);
    _mm512_store_si512(out.start, _mm512_sub_epi32(_mm512_setzero_si512(), sums));
  }

  template <int kRows, int kXs>
  [[gnu::always_inline]] static void sums(const Block* const* w, const XQuad* const* x, int n, bool ahead,
                                          QuadSums* out) {
    __m512i of_result[kGroups<kXs>][4];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      if (ahead) prefetch_stream<kQuadBlocks * sizeof(Block), kRows>(w[i]);
      const auto codes = Derived::unpack(w[i], n);
#pragma GCC unroll 8
      for (int j = 0; j < kXs; ++j)
        of_result[j / kGroupXs<kXs>][i * kGroupXs<kXs> + j % kGroupXs<kXs>] = _mm512_dpbusd_epi32(
            _mm512_dpbusd_epi32(_mm512_load_si512(x[j]->start), codes.code[0], _mm512_load_si512(x[j]->q[0])),
            codes.code[1], _mm512_load_si512(x[j]->q[1]));
    }
#pragma GCC unroll 2
    for (int g = 0; g < kGroups<kXs>; ++g) out[g] = {sum_elements(of_result[g]), _mm512_setzero_si512()};
  }
};

}  // namespace
}  // namespace terrace::kernels
