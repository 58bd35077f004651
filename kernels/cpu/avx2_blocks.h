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

// The int16 at `index` (0..7) of each 128-bit half, in every int16 of that half.
inline __m256i broadcast_word(__m256i words, int index) {
  return _mm256_shuffle_epi8(words, _mm256_set1_epi16(static_cast<short>(index * 0x0202 + 0x0100)));
}

// Makes the compiler have the value here. GCC 12 otherwise postpones the adds of a whole tile and spills every product.
inline void keep_in_register(__m256i& value) { asm("" : "+x"(value)); }

// What a type precomputes from an x block, or knows of a weight block, when it needs nothing.
struct Nothing {};

// Type, a struct in the anonymous namespace of the including file, gives a block's sum in steps, so that few unpacked
// weights are alive at once and all four sums stay in registers:
// clang-format off
//   Block, XBlock
//   Sums;   static Sums sum_x(const XBlock&)                    computed once from an x block, used by every weight row
//   Head;   static Head head(const Block&)                      a weight block's scales
//   kSteps
//   Slice;  static Slice slice(const Block&, const Head&, int)  the weights of one step, unpacked
//   static __m256i start(const Head&, const Sums&)              the lanes: int32, or what totals() takes
//   static __m256i add(__m256i, const Slice&, const XBlock&, int)   the lanes and what each step adds to them
//   static __m128i totals(const __m256i sum[4])                 I_c of the four sums
//   kHasMin; if true also
//   static __m128i dot_min(const Head&, const Sums&)            int32 lanes, in sum M_c
// clang-format on
template <class Type>
struct BlockKernel {
  using Block = typename Type::Block;
  using XBlock = typename Type::XBlock;
  using Sums = typename Type::Sums;

  // The sums of a tile's x rows live on the stack, so long rows are done in spans of blocks; between spans the
  // accumulators rest in y, exactly.
  static constexpr std::size_t kSpanBlocks = 16384 / Block::kValues;

  static constexpr int kMaxXs = 4;

  const DotArgs& args;
  std::size_t first_block;  // of the span
  std::size_t n_blocks;     // in it

  template <int kRows, int kXs>
  void x_tile(std::size_t first_x, std::size_t first_row, std::size_t end_row) const {
    const Tile<kRows, kXs> tile{first_row, end_row, first_x, args.n_x};
    Sums sums[kXs][kSpanBlocks];
    const XBlock* x[kXs];
    for (int j = 0; j < kXs; ++j) {
      x[j] = reinterpret_cast<const XBlock*>(args.x[tile.x(j)]) + first_block;
      for (std::size_t c = 0; c < n_blocks; ++c) sums[j][c] = Type::sum_x(x[j][c]);
    }
    for_each_tile(tile, [&](const Tile<kRows, kXs>& at) { dot_tile(at, x, sums); });
  }

  template <int kRows, int kXs>
  void dot_tile(const Tile<kRows, kXs>& tile, const XBlock* const* x, const Sums (*sums)[kSpanBlocks]) const {
    const Block* w[kRows];
    for (int i = 0; i < kRows; ++i)
      w[i] = reinterpret_cast<const Block*>(args.w + tile.row(i) * args.w_row_bytes) + first_block;

    const bool reads_memory = tile.reads_memory();
    __m128 acc = first_block == 0 ? _mm_setzero_ps() : load_tile(args, tile);
    for (std::size_t c = 0; c < n_blocks; ++c) {
      __m256i sum[4];
      __m128i min_sum[4];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        if (reads_memory) prefetch_stream<sizeof(Block), kRows>(w[i] + c);
        const typename Type::Head head = Type::head(w[i][c]);
        __m256i* row_sum = sum + i * kXs;
#pragma GCC unroll 4
        for (int j = 0; j < kXs; ++j) {
          row_sum[j] = Type::start(head, sums[j][c]);
          if constexpr (Type::kHasMin) min_sum[i * kXs + j] = Type::dot_min(head, sums[j][c]);
        }
#pragma GCC unroll 8
        for (int step = 0; step < Type::kSteps; ++step) {
          const typename Type::Slice slice = Type::slice(w[i][c], head, step);
#pragma GCC unroll 4
          for (int j = 0; j < kXs; ++j) {
            row_sum[j] = Type::add(row_sum[j], slice, x[j][c], step);
            keep_in_register(row_sum[j]);
          }
        }
      }
      acc = _mm_add_ps(acc, block_values(w, x, c, tile, Type::totals(sum), min_sum));
    }
    store_tile(args, tile, acc);
  }

  // v_c of the four results.
  template <int kRows, int kXs>
  static __m128 block_values(const Block* const* w, const XBlock* const* x, std::size_t c, const Tile<kRows, kXs>&,
                             __m128i totals, const __m128i* min_sum) {
    const __m128 d_a = x_scales<kXs>(x, c);
    if constexpr (Type::kHasMin) {
      const ScalesAndMins w_scales = scales_and_mins<kRows>(w, c);
      const __m128 min_totals = _mm_cvtepi32_ps(sum_each_epi32(min_sum[0], min_sum[1], min_sum[2], min_sum[3]));
      const __m128 min_values = _mm_mul_ps(_mm_mul_ps(w_scales.dmin, d_a), min_totals);
      return _mm_fmsub_ps(_mm_mul_ps(w_scales.d, d_a), _mm_cvtepi32_ps(totals), min_values);
    } else {
      return _mm_mul_ps(_mm_mul_ps(scales<kRows>(w, c), d_a), _mm_cvtepi32_ps(totals));
    }
  }

  // A tile's scales, widened, each where its results lie.
  template <int kRows>
  static __m128 scales(const Block* const* w, std::size_t c) {
    const auto d = [&](int i) { return w[i][c].d; };
    if constexpr (kRows == 1) return _mm_cvtph_ps(_mm_set1_epi16(static_cast<short>(d(0))));
    if constexpr (kRows == 2) return _mm_cvtph_ps(_mm_setr_epi16(d(0), d(0), d(1), d(1), 0, 0, 0, 0));
    if constexpr (kRows == 4) {
      __m128i halves = _mm_cvtsi32_si128(d(0));
      halves = _mm_insert_epi16(halves, d(1), 1);
      halves = _mm_insert_epi16(halves, d(2), 2);
      return _mm_cvtph_ps(_mm_insert_epi16(halves, d(3), 3));
    }
  }
  struct ScalesAndMins {
    __m128 d, dmin;
  };
  template <int kRows>
  static ScalesAndMins scales_and_mins(const Block* const* w, std::size_t c) {
    static_assert(offsetof(Block, dmin) == offsetof(Block, d) + 2, "one 32-bit load reads both");
    const auto both = [&](int i) {
      int word;
      __builtin_memcpy(&word, &w[i][c].d, sizeof word);
      return word;
    };
    const __m256 widened =
        _mm256_cvtph_ps(_mm_setr_epi32(both(0), both(kRows / 4), both(2 * kRows / 4), both(3 * kRows / 4)));
    const __m128 low = _mm256_castps256_ps128(widened), high = _mm256_extractf128_ps(widened, 1);
    return {_mm_shuffle_ps(low, high, 0x88), _mm_shuffle_ps(low, high, 0xdd)};
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
