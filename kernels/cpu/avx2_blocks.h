// Rows of block weights times int8 rows in AVX2 (docs/numerics.md 3.1). For avx2*.cpp only; everything here has
// internal linkage (float_bits.h says why).
//
// A tile gives four results at once: the integer sums of four (weight block, x block) pairs as int32 vectors, one
// shuffle tree that turns these into a vector of four totals, then v_c and the ordered add in four f32 lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2_lanes.h"
#include "kernels/cpu/avx2_tiles.h"

namespace terrace::kernels {
namespace {

inline __m256i load_bytes(const void* bytes) { return _mm256_loadu_si256(static_cast<const __m256i*>(bytes)); }

// int32 lanes, each the sum of four neighbouring int8 values.
inline __m256i sum_fours(__m256i bytes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
}

// What a type precomputes from an x block when it needs nothing.
struct NoSums {};

// Type, a struct in the anonymous namespace of the including file:
//   Block, XBlock
//   Sums                                               what is computed once from an x block and used by every row
//   static Sums sum_x(const XBlock&)
//   Weights                                            a block unpacked, in registers
//   static Weights unpack(const Block&)
//   static __m256i dot(const Weights&, const XBlock&, const Sums&)    int32 lanes, in sum I_c
//   kHasMin; if true also
//   static __m128i dot_min(const Weights&, const Sums&)               int32 lanes, in sum M_c
template <class Type>
struct BlockKernel {
  using Block = typename Type::Block;
  using XBlock = typename Type::XBlock;
  using Sums = typename Type::Sums;

  // The sums of a tile's x rows live on the stack, so long rows are done in spans of blocks; between spans the
  // accumulators rest in y, exactly.
  static constexpr std::size_t kSpanBlocks = 16384 / Block::kValues;

  const DotArgs& args;
  std::size_t first_block;  // of the span
  std::size_t n_blocks;     // in it

  template <int kRows, int kXs>
  void x_tile(std::size_t first_x, std::size_t first_row, std::size_t end_row) const {
    Tile<kRows, kXs> tile{first_row, end_row, first_x, args.n_x};
    Sums sums[kXs][kSpanBlocks];
    const XBlock* x[kXs];
    for (int j = 0; j < kXs; ++j) {
      x[j] = reinterpret_cast<const XBlock*>(args.x[tile.x(j)]) + first_block;
      for (std::size_t c = 0; c < n_blocks; ++c) sums[j][c] = Type::sum_x(x[j][c]);
    }
    for (; tile.first_row < end_row; tile.first_row += kRows) dot_tile(tile, x, sums);
  }

  template <int kRows, int kXs>
  void dot_tile(const Tile<kRows, kXs>& tile, const XBlock* const* x, const Sums (*sums)[kSpanBlocks]) const {
    const Block* w[kRows];
    for (int i = 0; i < kRows; ++i)
      w[i] = reinterpret_cast<const Block*>(args.w + tile.row(i) * args.w_row_bytes) + first_block;

    __m128 acc = first_block == 0 ? _mm_setzero_ps() : load_tile(args, tile);
    for (std::size_t c = 0; c < n_blocks; ++c) {
      __m256i sum[4];
      __m128i min_sum[4];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        if (kXs == 1) prefetch_ahead<sizeof(Block)>(w[i] + c, kRows * args.w_row_bytes);
        const typename Type::Weights weights = Type::unpack(w[i][c]);
#pragma GCC unroll 4
        for (int j = 0; j < kXs; ++j) {
          sum[i * kXs + j] = Type::dot(weights, x[j][c], sums[j][c]);
          if constexpr (Type::kHasMin) min_sum[i * kXs + j] = Type::dot_min(weights, sums[j][c]);
        }
      }
      const __m128 d_a = x_scales<kXs>(x, c);
      const __m128 scale = _mm_mul_ps(scales<kRows, &Block::d>(w, c), d_a);
      const __m128 total = _mm_cvtepi32_ps(sum_each_epi32(sum[0], sum[1], sum[2], sum[3]));
      if constexpr (Type::kHasMin) {
        const __m128 min_scale = _mm_mul_ps(scales<kRows, &Block::dmin>(w, c), d_a);
        const __m128 min_total = _mm_cvtepi32_ps(sum_each_epi32(min_sum[0], min_sum[1], min_sum[2], min_sum[3]));
        acc = _mm_add_ps(acc, _mm_fmsub_ps(scale, total, _mm_mul_ps(min_scale, min_total)));
      } else {
        acc = _mm_add_ps(acc, _mm_mul_ps(scale, total));
      }
    }
    store_tile(args, tile, acc);
  }

  // A tile's f16 weight scales, widened, each where its results lie.
  template <int kRows, std::uint16_t Block::*kScale>
  static __m128 scales(const Block* const* w, std::size_t c) {
    const auto half = [&](int i) { return static_cast<short>(w[i][c].*kScale); };
    if constexpr (kRows == 1) return _mm_cvtph_ps(_mm_set1_epi16(half(0)));
    if constexpr (kRows == 2) return _mm_cvtph_ps(_mm_setr_epi16(half(0), half(0), half(1), half(1), 0, 0, 0, 0));
    if constexpr (kRows == 4) return _mm_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), 0, 0, 0, 0));
  }
  template <int kXs>
  static __m128 x_scales(const XBlock* const* x, std::size_t c) {
    if constexpr (kXs == 1) return _mm_set1_ps(x[0][c].d);
    if constexpr (kXs == 2) return _mm_setr_ps(x[0][c].d, x[1][c].d, x[0][c].d, x[1][c].d);
    if constexpr (kXs == 4) return _mm_setr_ps(x[0][c].d, x[1][c].d, x[2][c].d, x[3][c].d);
  }
};

template <class Type>
void dot_block_rows(const DotArgs& args) {
  const std::size_t n_blocks = args.cols / Type::Block::kValues;
  constexpr std::size_t kSpan = BlockKernel<Type>::kSpanBlocks;
  for (std::size_t first = 0; first < n_blocks; first += kSpan)
    for_each_x_tile(args, BlockKernel<Type>{args, first, n_blocks - first < kSpan ? n_blocks - first : kSpan});
}

}  // namespace
}  // namespace terrace::kernels
