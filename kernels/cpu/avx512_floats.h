// Rows of float weights times f32 rows in AVX-512 (docs/numerics.md 3.2): the 16 lanes are one register a result. For
// avx512*.cpp only; everything here has internal linkage (float_bits.h says why).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2_tiles.h"
#include "kernels/cpu/avx512_lanes.h"
#include "kernels/cpu/lanes.h"

namespace terrace::kernels {
namespace {

// Type, a struct in the anonymous namespace of the including file:
//   Element                                                     the stored value
//   static __m512 load(const Element*)                          sixteen of them, widened
//   static __m512 load_first(const Element*, __mmask16 which)   those of the mask, zeros elsewhere; reads no others
template <class Type>
struct FloatKernel512 {
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

    __m512 lanes[4] = {};
    const std::size_t whole = args.cols / kLanes * kLanes;
    for (std::size_t k = 0; k < whole; k += kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        if (kXs == 1) prefetch_ahead<kLanes * sizeof(Element), _MM_HINT_T0>(w[i] + k, kPageBytes);
        const __m512 weights = Type::load(w[i] + k);
#pragma GCC unroll 4
        for (int j = 0; j < kXs; ++j)
          lanes[i * kXs + j] = _mm512_fmadd_ps(weights, _mm512_loadu_ps(x[j] + k), lanes[i * kXs + j]);
      }
    }
    if (whole != args.cols) add_rest<kRows, kXs>(w, x, whole, lanes);
    alignas(16) float result[4];
#pragma GCC unroll 4
    for (int o = 0; o < 4; ++o) result[o] = sum_lanes_avx512(lanes[o]);
    store_tile(args, tile, _mm_load_ps(result));
  }

  // The last cols % 16 values: lanes without a term are left alone.
  template <int kRows, int kXs>
  void add_rest(const Element* const* w, const float* const* x, std::size_t whole, __m512* lanes) const {
    const auto rest = static_cast<__mmask16>((1u << (args.cols - whole)) - 1);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kXs; ++j)
        lanes[i * kXs + j] = _mm512_mask3_fmadd_ps(Type::load_first(w[i] + whole, rest),
                                                   _mm512_maskz_loadu_ps(rest, x[j] + whole), lanes[i * kXs + j], rest);
  }
};

template <class Type>
void dot_float_rows_avx512(const DotArgs& args) {
  for_each_x_tile(args, FloatKernel512<Type>{args});
}

}  // namespace
}  // namespace terrace::kernels
