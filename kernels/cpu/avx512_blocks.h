// Rows of block weights times int8 rows in AVX-512 with VNNI (docs/numerics.md 3.1). For avx512*.cpp only; everything
// here has internal linkage (float_bits.h says why).
//
// A tile gives four results (avx2_tiles.h), and takes four blocks of each at a time, a *quad*. The integer sums of a
// quad come as one vector: quarter b belongs to block b, element k to result k. So v_c is computed for sixteen blocks
// at once, and the ordered add is one addition a block for all four results.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2_tiles.h"
#include "kernels/cpu/avx512_lanes.h"

namespace terrace::kernels {
namespace {

inline constexpr int kQuadBlocks = kQuarters;

// The integer sums of a quad: I_c, and M_c where the type has a minimum.
struct QuadSums {
  __m512i sum;
  __m512i min_sum;
};

// Type, a struct in the anonymous namespace of the including file:
//   Block, XBlock
//   kHasMin
//   XQuad                                                        what is prepared once from four blocks of an x row
//   static void prepare(const XBlock* x, int n, XQuad&)          n blocks, 1..4; the rest is set to zeros
//   template <int kRows, int kXs>
//   static void sums(const Block* const* w, const XQuad* const* x, int n, bool ahead, QuadSums* out)
//                                                                of each group of four results, of blocks w[row][0 ..
//                                                                n); reads none behind them, but asks for those that
//                                                                follow if `ahead`
//   static const void* scale_bytes(const Block*)                 16 bytes of the block, of which
//   kScaleElement                                                element 0 holds d (and then dmin) or element 3 d last
// A tile's results in groups of four; result i of a group is that of weight row i / kGroupXs, x row i % kGroupXs of it.
template <int kXs>
inline constexpr int kGroups = kXs == 8 ? 2 : 1;
template <int kXs>
inline constexpr int kGroupXs = kXs / kGroups<kXs>;

template <class Type>
struct QuadKernel {
  using Block = typename Type::Block;
  using XBlock = typename Type::XBlock;
  using XQuad = typename Type::XQuad;

  // Prepared x rows lie on the stack and should stay in the first-level cache, so long rows are done in spans of
  // quads, a tile of several x rows in shorter ones; between spans the accumulators rest in y, exactly.
  static constexpr std::size_t kSpanValues = 16384;
  template <int kXs>
  static constexpr std::size_t kSpanQuads = kSpanValues / kXs / (kQuadBlocks * Block::kValues);

  static constexpr int kMaxXs = 8;

  const DotArgs& args;

  template <int kRows, int kXs>
  void x_tile(std::size_t first_x, std::size_t first_row, std::size_t end_row) const {
    const std::size_t n_blocks = args.cols / Block::kValues;
    constexpr std::size_t kSpan = kSpanQuads<kXs> * kQuadBlocks;
    for (std::size_t first = 0; first < n_blocks; first += kSpan)
      span<kRows, kXs>(Tile<kRows, kXs>{first_row, end_row, first_x, args.n_x}, first,
                       n_blocks - first < kSpan ? n_blocks - first : kSpan);
  }

  // What a tile's x rows give for one span.
  template <int kXs>
  struct XSpan {
    XQuad quads[kXs][kSpanQuads<kXs>];
    __m512 d[kSpanQuads<kXs>][kGroups<kXs>];  // quarter: block, element: result
  };

  template <int kRows, int kXs>
  void span(Tile<kRows, kXs> tile, std::size_t first_block, std::size_t n_blocks) const {
    XSpan<kXs> x;
    for (std::size_t c = 0; c < n_blocks; c += kQuadBlocks) {
      const int n = n_blocks - c < kQuadBlocks ? static_cast<int>(n_blocks - c) : kQuadBlocks;
      alignas(64) float d[kGroups<kXs>][kQuarters][4] = {};
      for (int j = 0; j < kXs; ++j) {
        const XBlock* blocks = reinterpret_cast<const XBlock*>(args.x[tile.x(j)]) + first_block + c;
        Type::prepare(blocks, n, x.quads[j][c / kQuadBlocks]);
        for (int b = 0; b < n; ++b)
          for (int i = 0; i < kRows; ++i) d[j / kGroupXs<kXs>][b][i * kGroupXs<kXs> + j % kGroupXs<kXs>] = blocks[b].d;
      }
      for (int g = 0; g < kGroups<kXs>; ++g) x.d[c / kQuadBlocks][g] = _mm512_load_ps(d[g]);
    }
    for_each_tile(tile, [&](const Tile<kRows, kXs>& at) { dot_tile(at, x, first_block, n_blocks); });
  }

  template <int kRows, int kXs>
  void dot_tile(const Tile<kRows, kXs>& tile, const XSpan<kXs>& x, std::size_t first_block,
                std::size_t n_blocks) const {
    const Block* w[kRows];
    for (int i = 0; i < kRows; ++i)
      w[i] = reinterpret_cast<const Block*>(args.w + tile.row(i) * args.w_row_bytes) + first_block;

    __m128 acc[kGroups<kXs>];
    for (int g = 0; g < kGroups<kXs>; ++g)
      acc[g] = first_block == 0 ? _mm_setzero_ps() : load_tile(args, group_of(tile, g));
    const bool ahead = tile.reads_memory();
    const std::size_t n_quads = n_blocks / kQuadBlocks;
    for (std::size_t q = 0; q < n_quads; ++q) {
      add_quad<kRows, kXs>(acc, w, x, q, kQuadBlocks, ahead);
      for (int i = 0; i < kRows; ++i) w[i] += kQuadBlocks;
    }
    const int rest = static_cast<int>(n_blocks % kQuadBlocks);
    if (rest != 0) add_quad<kRows, kXs>(acc, w, x, n_quads, rest, ahead);
    for (int g = 0; g < kGroups<kXs>; ++g) store_tile(args, group_of(tile, g), acc[g]);
  }

  template <int kRows, int kXs>
  [[gnu::always_inline]] static void add_quad(__m128* acc, const Block* const* w, const XSpan<kXs>& x, std::size_t quad,
                                              int n, bool ahead) {
    const XQuad* x_quads[kXs];
#pragma GCC unroll 8
    for (int j = 0; j < kXs; ++j) x_quads[j] = &x.quads[j][quad];
    const __m512i words = scale_words<kRows>(w, n);
    QuadSums sums[kGroups<kXs>];
    Type::template sums<kRows, kXs>(w, x_quads, n, ahead, sums);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups<kXs>; ++g) acc[g] = add_blocks(acc[g], values(words, x.d[quad][g], sums[g]), n);
  }

  [[gnu::always_inline]] static __m128 add_blocks(__m128 acc, __m512 v, int n) {
    acc = _mm_add_ps(acc, _mm512_castps512_ps128(v));
    if (n > 1) acc = _mm_add_ps(acc, _mm512_extractf32x4_ps(v, 1));
    if (n > 2) acc = _mm_add_ps(acc, _mm512_extractf32x4_ps(v, 2));
    if (n > 3) acc = _mm_add_ps(acc, _mm512_extractf32x4_ps(v, 3));
    return acc;
  }

  // v_c of the quad's blocks.
  static __m512 values(__m512i words, __m512 d_a, const QuadSums& sums) {
    const __m512 d = widen(Type::kScaleElement == 3 ? _mm512_srli_epi32(words, 16) : words);
    const __m512 value_scale = _mm512_mul_ps(d, d_a);
    if constexpr (Type::kHasMin) {
      const __m512 min_scale = _mm512_mul_ps(widen(_mm512_srli_epi32(words, 16)), d_a);
      const __m512 min_values = _mm512_mul_ps(min_scale, _mm512_cvtepi32_ps(sums.min_sum));
      return _mm512_fmsub_ps(value_scale, _mm512_cvtepi32_ps(sums.sum), min_values);
    } else {
      return _mm512_mul_ps(value_scale, _mm512_cvtepi32_ps(sums.sum));
    }
  }

  // The f16 in the lower half of each element.
  static __m512 widen(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }

  // The element of each block's 16 bytes that holds its scales, where the block's results lie.
  template <int kRows>
  [[gnu::always_inline]] static __m512i scale_words(const Block* const* w, int n) {
    __m512i bytes[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) bytes[i] = load_quarters(Type::scale_bytes(w[i]), sizeof(Block), n);
    constexpr bool kLast = Type::kScaleElement == 3;
    static_assert(kLast || Type::kScaleElement == 0);
    const auto interleave = [](__m512i a, __m512i b) {
      return kLast ? _mm512_unpackhi_epi32(a, b) : _mm512_unpacklo_epi32(a, b);
    };
    if constexpr (kRows == 1) return _mm512_shuffle_epi32(bytes[0], static_cast<_MM_PERM_ENUM>(kLast ? 0xff : 0x00));
    if constexpr (kRows == 2)
      return _mm512_shuffle_epi32(interleave(bytes[0], bytes[1]), static_cast<_MM_PERM_ENUM>(kLast ? 0xfa : 0x50));
    if constexpr (kRows == 4) {
      const __m512i first = interleave(bytes[0], bytes[1]), second = interleave(bytes[2], bytes[3]);
      return kLast ? _mm512_unpackhi_epi64(first, second) : _mm512_unpacklo_epi64(first, second);
    }
  }
};

template <class Type>
void dot_block_quads(const DotArgs& args) {
  for_each_x_tile(args, QuadKernel<Type>{args});
}

}  // namespace
}  // namespace terrace::kernels
