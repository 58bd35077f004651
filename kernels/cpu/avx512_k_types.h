// What the K-types' sums for avx512_blocks.h share: 256 unsigned codes a block, in four vectors, and a small integer
// scale for each 32 or 16 of them. For avx512*.cpp only; internal linkage: float_bits.h says why.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_lanes.h"
#include "kernels/cpu/avx512_blocks.h"

namespace terrace::kernels {
namespace {

inline constexpr int kVectors = 4;  // of 64 codes, or x values, of a block

// The same bits in every byte.
inline __m512i every_byte(int bits) { return _mm512_set1_epi8(static_cast<char>(bits)); }

// Quarter i's four elements are q<i>.
inline __m512i per_quarter(int q0, int q1, int q2, int q3) {
  return _mm512_setr_epi32(q0, q0, q0, q0, q1, q1, q1, q1, q2, q2, q2, q2, q3, q3, q3, q3);
}

// The sums of a quad from those of single blocks. Derived gives
//   Head, static Head heads(const Block* w, int n)                      the scales of a row's n blocks
//   Codes, static Codes unpack(const Block&, const Head&, int b)        block b of the quad
//   static __m512i dot(const Codes&, const XQuad&, int b)               elements, in sum I_c
template <class Derived, class BlockType, class XQuadType>
struct KType {
  using Block = BlockType;
  using XBlock = BlockA8x256;
  using XQuad = XQuadType;

  template <int kRows, int kXs, class Head>
  [[gnu::always_inline]] static void block_sums(const Block* const* w, const Head* heads, const XQuad* const* x, int n,
                                                bool ahead, __m512i* out) {
    __m512i of_block[kGroups<kXs>][kQuadBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kQuadBlocks; ++b) {
#pragma GCC unroll 2
      for (int g = 0; g < kGroups<kXs>; ++g) of_block[g][b] = _mm512_setzero_si512();
      if (b >= n) continue;
      // A part of each row's next quad with each block, so that the requests are spread.
      constexpr int kBlocks = kRows;  // of the quad, in a fourth of all rows' requests
      if (ahead) prefetch_stream<kBlocks * sizeof(Block), kRows>(w[b * kRows / 4] + b % (4 / kRows) * kBlocks);
      __m512i of_result[kGroups<kXs>][4];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const auto codes = Derived::unpack(w[i][b], heads[i], b);
#pragma GCC unroll 8
        for (int j = 0; j < kXs; ++j)
          of_result[j / kGroupXs<kXs>][i * kGroupXs<kXs> + j % kGroupXs<kXs>] = Derived::dot(codes, *x[j], b);
      }
#pragma GCC unroll 2
      for (int g = 0; g < kGroups<kXs>; ++g) of_block[g][b] = sum_elements(of_result[g]);
    }
#pragma GCC unroll 2
    for (int g = 0; g < kGroups<kXs>; ++g) out[g] = sum_quarters(of_block[g]);
  }
};

// ---- Q4_K and Q5_K: eight sub-blocks of 32, each with a scale and a min ---------------------------------------------
//
// Quarter k of vector p holds values 16p .. 16p + 15 of 64k .. 64k + 63: of sub-block 2k for p < 2, else of 2k + 1.
// So the products of p = 0 and 1 may be added before they are scaled.

struct XQuadWithMins {
  alignas(64) std::int8_t q[kQuadBlocks][kVectors][64];
  alignas(64) std::int16_t sums[kQuadBlocks][8];  // of each 32 values, at most 32 * 127 = 4064 in magnitude
};

struct HeadWithMins {
  alignas(64) std::uint8_t bytes[kQuadBlocks][16];  // scales 0..3, mins 0..3, scales 4..7, mins 4..7
  __m512i mins;                                     // int16; quarter: block
};

struct CodesWithMins {
  __m512i code[kVectors];  // 0..15, or 0..31
  __m512i scale;           // int16: in quarter k four times that of 2k, four times that of 2k + 1
};

template <class Derived, class BlockType>
struct KTypeWithMins : KType<Derived, BlockType, XQuadWithMins> {
  using Block = BlockType;
  using XQuad = XQuadWithMins;
  static constexpr bool kHasMin = true;
  static constexpr int kScaleElement = 0;
  static_assert(offsetof(Block, d) == 0 && offsetof(Block, dmin) == 2 && offsetof(Block, scales) == 4);

  static const void* scale_bytes(const Block* w) { return w; }

  static void prepare(const BlockA8x256* x, int n, XQuad& out) {
    for (int b = 0; b < kQuadBlocks; ++b) {
      if (b >= n) {
        _mm_store_si128(reinterpret_cast<__m128i*>(out.sums[b]), _mm_setzero_si128());
        continue;
      }
      __m256i sum[8];
      for (int j = 0; j < 8; ++j)
        sum[j] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1),
                                     _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[b].q + 32 * j)));
      _mm_store_si128(reinterpret_cast<__m128i*>(out.sums[b]),
                      _mm_packs_epi32(sum_each_epi32(sum), sum_each_epi32(sum + 4)));
      for (int p = 0; p < kVectors; ++p) _mm512_store_si512(out.q[b][p], load_quarters(x[b].q + 16 * p, 64, kQuarters));
    }
  }

  // As avx2_k_scales.h unpacks them, four blocks at once.
  [[gnu::always_inline]] static HeadWithMins heads(const Block* w, int n) {
    const __m512i packed = load_quarters(w, sizeof(Block), n);
    const __m512i first = _mm512_srlv_epi32(_mm512_shuffle_epi32(packed, static_cast<_MM_PERM_ENUM>(0x99)),
                                            _mm512_set4_epi32(2, 2, 0, 0));
    const __m512i last = _mm512_srlv_epi32(_mm512_shuffle_epi32(packed, static_cast<_MM_PERM_ENUM>(0xff)),
                                           _mm512_set4_epi32(4, 0, 0, 0));
    const __m512i last_bits = _mm512_and_si512(last, _mm512_set4_epi32(0x0f0f0f0f, 0x0f0f0f0f, 0, 0));
    const __m512i bytes = and_or(first, _mm512_set4_epi32(0x30303030, 0x30303030, 0x3f3f3f3f, 0x3f3f3f3f), last_bits);
    HeadWithMins head;
    _mm512_store_si512(head.bytes, bytes);
    const __m128i places = _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1);
    head.mins = _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(places));
    return head;
  }

  static __m512i scales(const HeadWithMins& head, int b) {
    // Sub-block 2k lies at byte 2k for k < 2, else at 2k + 4; 0x80 makes a zero byte.
    const auto places = [](int byte) { return static_cast<int>(0x80008000u | static_cast<unsigned>(byte * 0x10001)); };
    return _mm512_shuffle_epi8(
        load_into_all_quarters(head.bytes[b]),
        _mm512_setr_epi32(places(0), places(0), places(1), places(1), places(2), places(2), places(3), places(3),
                          places(8), places(8), places(9), places(9), places(10), places(10), places(11), places(11)));
  }

  // Eight products of 31 * 127 are at most 31496: the sums fit int16.
  static __m512i dot(const CodesWithMins& w, const XQuad& x, int b) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i even = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w.code[0], _mm512_load_si512(x.q[b][0])),
                                             w.code[1], _mm512_load_si512(x.q[b][1]));
    const __m512i odd = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w.code[2], _mm512_load_si512(x.q[b][2])),
                                            w.code[3], _mm512_load_si512(x.q[b][3]));
    return _mm512_madd_epi16(_mm512_packs_epi32(even, odd), w.scale);
  }

  template <int kRows, int kXs>
  [[gnu::always_inline]] static void sums(const Block* const* w, const XQuad* const* x, int n, bool ahead,
                                          QuadSums* out) {
    HeadWithMins head[kRows];
    __m512i min_sum[kGroups<kXs>][4];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      head[i] = heads(w[i], n);
#pragma GCC unroll 8
      for (int j = 0; j < kXs; ++j)
        min_sum[j / kGroupXs<kXs>][i * kGroupXs<kXs> + j % kGroupXs<kXs>] =
            _mm512_madd_epi16(head[i].mins, _mm512_load_si512(x[j]->sums));
    }
    __m512i sum[kGroups<kXs>];
    KTypeWithMins::template block_sums<kRows, kXs>(w, head, x, n, ahead, sum);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups<kXs>; ++g) out[g] = {sum[g], sum_elements(min_sum[g])};
  }
};

// ---- Q3_K and Q6_K: sixteen groups of 16, each with a scale of either sign ------------------------------------------
//
// A quarter of a vector is one group. The x values come with what the codes' offset takes off each four products.

struct XQuadWithOffset {
  alignas(64) std::int8_t q[kQuadBlocks][kVectors][64];
  alignas(64) std::int32_t start[kQuadBlocks][kVectors][16];  // -offset * the sum of four values
};

struct CodesWithOffset {
  __m512i code[kVectors];
  __m512i scale[2];  // int16, of vectors 0 and 1, and of 2 and 3: in a quarter four times that of the first, then of
                     // the second
};

// A weight is its code less kOffset. Derived gives, beside what KType wants,
//   static __m512i x_vector(const BlockA8x256&, int p)      the x values that meet vector p
//   kSumShift                                               the scales are 2^kSumShift times what they should be
template <class Derived, class BlockType, int kOffset>
struct KTypeWithOffset : KType<Derived, BlockType, XQuadWithOffset> {
  using Block = BlockType;
  using XQuad = XQuadWithOffset;
  static constexpr bool kHasMin = false;
  static constexpr int kScaleElement = 3;
  static_assert(offsetof(Block, d) == sizeof(Block) - 2);

  static const void* scale_bytes(const Block* w) { return reinterpret_cast<const char*>(w + 1) - 16; }

  static void prepare(const BlockA8x256* x, int n, XQuad& out) {
    for (int b = 0; b < n; ++b)
      for (int p = 0; p < kVectors; ++p) {
        const __m512i q = Derived::x_vector(x[b], p);
        _mm512_store_si512(out.q[b][p], q);
        const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), every_byte(kOffset), q);
        _mm512_store_si512(out.start[b][p], _mm512_sub_epi32(_mm512_setzero_si512(), sums));
      }
  }

  // Four products of 32 * 127 are at most 16256: the sums fit int16.
  static __m512i dot(const CodesWithOffset& w, const XQuad& x, int b) {
    const auto products = [&](int p) {
      return _mm512_dpbusd_epi32(_mm512_load_si512(x.start[b][p]), w.code[p], _mm512_load_si512(x.q[b][p]));
    };
    const __m512i first = _mm512_madd_epi16(_mm512_packs_epi32(products(0), products(1)), w.scale[0]);
    return _mm512_dpwssd_epi32(first, _mm512_packs_epi32(products(2), products(3)), w.scale[1]);
  }

  // 2^8 times the int8 scales at two places of each quarter's 16, as int16: four times the first, four times the
  // second.
  static __m512i upper_scales(__m512i bytes, __m512i places) { return _mm512_shuffle_epi8(bytes, places); }
  // A byte to the upper half of four int16.
  static long long upper(int byte) {
    return static_cast<long long>(0x0080008000800080u | static_cast<unsigned long long>(byte) * 0x0100010001000100u);
  }
  static __m512i places(int q0, int q1, int q2, int q3, int second) {
    return _mm512_setr_epi64(upper(q0), upper(q0 + second), upper(q1), upper(q1 + second), upper(q2),
                             upper(q2 + second), upper(q3), upper(q3 + second));
  }

  template <int kRows, int kXs>
  [[gnu::always_inline]] static void sums(const Block* const* w, const XQuad* const* x, int n, bool ahead,
                                          QuadSums* out) {
    typename Derived::Head head[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) head[i] = Derived::heads(w[i], n);
    __m512i sum[kGroups<kXs>];
    KTypeWithOffset::template block_sums<kRows, kXs>(w, head, x, n, ahead, sum);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups<kXs>; ++g)
      out[g] = {_mm512_srai_epi32(sum[g], Derived::kSumShift), _mm512_setzero_si512()};
  }
};

}  // namespace
}  // namespace terrace::kernels
