// How the AVX2 kernels walk over weight rows and x rows: in tiles of four results, so that four independent chains
// are in flight and the arithmetic after the integer sums is done for four results at once. For avx2*.cpp only.
// Everything here has internal linkage: float_bits.h says why.
//
//   n_x - j >= 3    1 weight row  x 4 x rows     a weight block is unpacked once for four x rows
//   n_x - j == 2    2 weight rows x 2 x rows
//   n_x - j == 1    4 weight rows x 1 x row      the memory-bound case: four streams, prefetched
//
// At the edges a tile's missing rows repeat its last row, and their results are not stored: every result is computed
// by the same operations in the same order whatever tile it falls into (P4).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {
namespace {

struct DotArgs {  // the arguments of DotRows
  const std::byte* w;
  std::size_t w_row_bytes;
  std::size_t n_weight_rows;
  const std::byte* const* x;
  std::size_t n_x;
  std::size_t cols;
  float* y;
  std::size_t y_stride;
};

// With several x tiles the weight rows are taken in panels, so that the second x tile finds them in the cache:
// 64 rows of Q4_K at 4096 columns are 147 KB.
inline constexpr std::size_t kPanelRows = 64;

// Results come out in the order [weight row][x row]. Row first + i is row i, capped at last.
template <int kRows, int kXs>
struct Tile {
  static_assert(kRows * kXs == 4);
  std::size_t first_row, end_row;  // of the weight rows still to do; end_row > first_row
  std::size_t first_x, end_x;

  std::size_t row(int i) const { return first_row + i < end_row ? first_row + i : end_row - 1; }
  std::size_t x(int j) const { return first_x + j < end_x ? first_x + j : end_x - 1; }
};

template <int kRows, int kXs>
inline void store_tile(const DotArgs& args, const Tile<kRows, kXs>& tile, __m128 results) {
  alignas(16) float result[4];
  _mm_store_ps(result, results);
  for (int i = 0; i < kRows && tile.first_row + i < tile.end_row; ++i)
    for (int j = 0; j < kXs && tile.first_x + j < tile.end_x; ++j)
      args.y[(tile.first_x + j) * args.y_stride + tile.first_row + i] = result[i * kXs + j];
}

// What store_tile() stored.
template <int kRows, int kXs>
inline __m128 load_tile(const DotArgs& args, const Tile<kRows, kXs>& tile) {
  alignas(16) float result[4];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kXs; ++j) result[i * kXs + j] = args.y[tile.x(j) * args.y_stride + tile.row(i)];
  return _mm_load_ps(result);
}

// Calls kernel.x_tile<kRows, kXs>(first x row, first weight row, end of the weight rows) for every x tile of every
// panel of weight rows; the kernel steps through the weight rows in tiles of kRows.
template <class Kernel>
void for_each_x_tile(const DotArgs& args, const Kernel& kernel) {
  const std::size_t panel = args.n_x <= 4 ? args.n_weight_rows : kPanelRows;
  for (std::size_t first = 0; first < args.n_weight_rows; first += panel) {
    const std::size_t end = args.n_weight_rows - first < panel ? args.n_weight_rows : first + panel;
    for (std::size_t j = 0; j < args.n_x;) {
      const std::size_t left = args.n_x - j;
      if (left >= 3) {
        kernel.template x_tile<1, 4>(j, first, end);
        j += 4;
      } else if (left == 2) {
        kernel.template x_tile<2, 2>(j, first, end);
        j += 2;
      } else {
        kernel.template x_tile<4, 1>(j, first, end);
        j += 1;
      }
    }
  }
}

// Asks for the kBytes that lie `ahead` bytes after `from`. Prefetches do not fault, so the address may lie beyond the
// tensor; it is computed as a number since a pointer could not. Always inlined: GCC 12 takes a function that only
// prefetches for one without effect, and drops the calls.
template <std::size_t kBytes, decltype(_MM_HINT_T0) kHint>
[[gnu::always_inline]] inline void prefetch_ahead(const void* from, std::size_t ahead) {
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(from) + ahead;
  for (std::size_t offset = 0; offset < kBytes; offset += 64)
    _mm_prefetch(reinterpret_cast<const char*>(first + offset), kHint);  // NOLINT(performance-no-int-to-ptr)
}

// One step's share, kBytes, of the next tile. Rows lie one behind the other, so the next tile's rows are fetched as one
// rising stream although this tile walks through its rows side by side: that reads memory up to three times as fast as
// a stream a row. A tile beyond a third of a 32 KB first-level cache goes to the second level.
template <std::size_t kBytes>
[[gnu::always_inline]] inline void prefetch_next_tile(const void* from, std::size_t tile_bytes) {
  if (tile_bytes <= 10 * 1024)
    prefetch_ahead<kBytes, _MM_HINT_T0>(from, tile_bytes);
  else
    prefetch_ahead<kBytes, _MM_HINT_T1>(from, tile_bytes);
}

}  // namespace
}  // namespace terrace::kernels
