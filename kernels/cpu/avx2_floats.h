// Rows of float weights times f32 rows in AVX2 (docs/numerics.md 3.2): 16 lanes are two registers a result. For
// avx2*.cpp only; everything here has internal linkage (float_bits.h says why).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2_lanes.h"
#include "kernels/cpu/avx2_tiles.h"
#include "kernels/cpu/lanes.h"

namespace terrace::kernels {
namespace {

// Type, a struct in the anonymous namespace of the including file:
//   Element                                      the stored value
//   static __m256 load(const Element*)           eight of them, widened
//   static float widen(Element)                  one
template <class Type>
struct FloatKernel {
  static constexpr int kMaxXs = 4;

  const DotArgs& args;

  using Element = typename Type::Element;

  template <int kRows, int kXs>
  void x_tile(std::size_t first_x, std::size_t first_row, std::size_t end_row) const {
    for_each_tile(Tile<kRows, kXs>{first_row, end_row, first_x, args.n_x},
                  [&](const Tile<kRows, kXs>& tile) { dot_tile(tile); });
  }

  template <int kRows, int kXs>
  void dot_tile(const Tile<kRows, kXs>& tile) const {
    const Element* w[kRows];
    const float* x[kXs];
    for (int i = 0; i < kRows; ++i) w[i] = reinterpret_cast<const Element*>(args.w + tile.row(i) * args.w_row_bytes);
    for (int j = 0; j < kXs; ++j) x[j] = reinterpret_cast<const float*>(args.x[tile.x(j)]);

    __m256 low[4] = {}, high[4] = {};
    const std::size_t whole = args.cols / kLanes * kLanes;
    for (std::size_t k = 0; k < whole; k += kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        if (kXs == 1) prefetch_ahead<kLanes * sizeof(Element), _MM_HINT_T0>(w[i] + k, kPageBytes);
        const __m256 w_low = Type::load(w[i] + k);
        const __m256 w_high = Type::load(w[i] + k + 8);
#pragma GCC unroll 4
        for (int j = 0; j < kXs; ++j) {
          low[i * kXs + j] = _mm256_fmadd_ps(w_low, _mm256_loadu_ps(x[j] + k), low[i * kXs + j]);
          high[i * kXs + j] = _mm256_fmadd_ps(w_high, _mm256_loadu_ps(x[j] + k + 8), high[i * kXs + j]);
        }
      }
    }
    alignas(16) float result[4];
#pragma GCC unroll 4
    for (int o = 0; o < 4; ++o)
      result[o] =
          whole == args.cols ? sum_lanes_avx2(low[o], high[o]) : finish(low[o], high[o], w[o / kXs], x[o % kXs], whole);
    store_tile(args, tile, _mm_load_ps(result));
  }

  // The last cols % 16 values: lanes without a term are left alone.
  float finish(__m256 low, __m256 high, const Element* w, const float* x, std::size_t whole) const {
    alignas(32) float lane[kLanes];
    _mm256_store_ps(lane, low);
    _mm256_store_ps(lane + 8, high);
    for (std::size_t k = whole; k < args.cols; ++k)
      lane[k - whole] = __builtin_fmaf(Type::widen(w[k]), x[k], lane[k - whole]);
    return sum_lanes(lane);
  }
};

template <class Type>
void dot_float_rows(const DotArgs& args) {
  for_each_x_tile(args, FloatKernel<Type>{args});
}

}  // namespace
}  // namespace terrace::kernels
