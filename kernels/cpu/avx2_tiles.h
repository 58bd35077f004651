// How the AVX2 and AVX-512 kernels walk over weight rows and x rows: in tiles of four results, so that four independent
// chains are in flight and the arithmetic after the integer sums is done for four results at once. For avx2*.cpp and
// avx512*.cpp only. Everything here has internal linkage: float_bits.h says why.
//
//   n_x - j >= 7    1 weight row  x 8 x rows     two times four results; only where registers suffice (AVX-512)
//   n_x - j >= 3    1 weight row  x 4 x rows     a weight block is unpacked once for four x rows
//   n_x - j == 2    2 weight rows x 2 x rows
//   n_x - j == 1    4 weight rows x 1 x row      the memory-bound case, its weight rows a quarter of the panel apart:
//                                                four long streams; of two x rows, two
//
// The first x tile of a panel finds its weights in memory, where decoding a few streams is bound by it too, and asks
// for them ahead; further tiles find them in the cache.
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

// Results come out in the order [weight row][x row]. Its i-th weight row is first_row + i * row_step, capped at the
// last.
template <int kRows, int kXs>
struct Tile {
  static_assert(kRows * kXs == 4 || (kRows == 1 && kXs == 8));
  std::size_t first_row, end_row;  // of the weight rows still to do; end_row > first_row
  std::size_t first_x, end_x;
  std::size_t row_step = 1;  // from one of the tile's weight rows to the next

  std::size_t row_or_beyond(int i) const { return first_row + static_cast<std::size_t>(i) * row_step; }
  std::size_t row(int i) const { return row_or_beyond(i) < end_row ? row_or_beyond(i) : end_row - 1; }
  bool reads_memory() const { return first_x == 0; }
  std::size_t x(int j) const { return first_x + j < end_x ? first_x + j : end_x - 1; }
};

// Of a tile of one weight row and eight x rows, four results: those of x rows 4 * group and the next three.
inline Tile<1, 4> group_of(const Tile<1, 8>& tile, int group) {
  return {tile.first_row, tile.end_row, tile.first_x + 4 * static_cast<std::size_t>(group), tile.end_x, tile.row_step};
}
// Other tiles are one group.
template <int kRows, int kXs>
inline const Tile<kRows, kXs>& group_of(const Tile<kRows, kXs>& tile, int) {
  return tile;
}

template <int kRows, int kXs>
inline void store_tile(const DotArgs& args, const Tile<kRows, kXs>& tile, __m128 results) {
  alignas(16) float result[4];
  _mm_store_ps(result, results);
  for (int i = 0; i < kRows && tile.row_or_beyond(i) < tile.end_row; ++i)
    for (int j = 0; j < kXs && tile.first_x + j < tile.end_x; ++j)
      args.y[(tile.first_x + j) * args.y_stride + tile.row_or_beyond(i)] = result[i * kXs + j];
}

// What store_tile() stored.
template <int kRows, int kXs>
inline __m128 load_tile(const DotArgs& args, const Tile<kRows, kXs>& tile) {
  alignas(16) float result[4];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kXs; ++j) result[i * kXs + j] = args.y[tile.x(j) * args.y_stride + tile.row(i)];
  return _mm_load_ps(result);
}

// Calls dot_tile for the tiles of one x tile, from tile.first_row to tile.end_row. With one x row, or two, memory is
// the limit, and the hardware follows streams page by page, so a tile's rows are as far apart as can be: then each of
// its streams goes on from row to row through its part of the panel. (Rows side by side start four streams anew with
// every tile: on a Xeon of 2023 that reads at 0.6 of the bandwidth, a quarter apart at 0.8.)
template <int kRows, int kXs, class DotTile>
void for_each_tile(Tile<kRows, kXs> tile, const DotTile& dot_tile) {
  const std::size_t n_tiles = (tile.end_row - tile.first_row + kRows - 1) / kRows;
  tile.row_step = n_tiles;
  for (std::size_t t = 0; t < n_tiles; ++t, ++tile.first_row) dot_tile(tile);
}

// Calls kernel.x_tile<kRows, kXs>(first x row, first weight row, end of the weight rows) for every x tile of every
// panel of weight rows; the kernel steps through the weight rows in tiles of kRows. Kernel::kMaxXs: 4, or 8 where it
// has x_tile<1, 8>.
template <class Kernel>
void for_each_x_tile(const DotArgs& args, const Kernel& kernel) {
  const std::size_t panel = args.n_x <= 4 ? args.n_weight_rows : kPanelRows;
  for (std::size_t first = 0; first < args.n_weight_rows; first += panel) {
    const std::size_t end = args.n_weight_rows - first < panel ? args.n_weight_rows : first + panel;
    for (std::size_t j = 0; j < args.n_x;) {
      const std::size_t left = args.n_x - j;
      if (Kernel::kMaxXs == 8 && left >= 7) {
        if constexpr (Kernel::kMaxXs == 8) kernel.template x_tile<1, 8>(j, first, end);
        j += 8;
      } else if (left >= 3) {
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

// Rows of floats are long streams, which the hardware's prefetchers follow up to the end of a page; their kernels ask
// one page ahead.
inline constexpr std::size_t kPageBytes = 4096;

// Weights of blocks: as far as 12 lines of each of four streams, 48 in flight; of fewer streams as many more of each.
template <int kStreams>
inline constexpr std::size_t kStreamAhead = 4 * 768 / kStreams;

// Asks for the kBytes that lie `ahead` bytes after `from`. Prefetches do not fault, so the address may lie beyond the
// tensor; it is computed as a number since a pointer could not. Always inlined: GCC 12 takes a function that only
// prefetches for one without effect, and drops the calls.
template <std::size_t kBytes, decltype(_MM_HINT_T0) kHint>
[[gnu::always_inline]] inline void prefetch_ahead(const void* from, std::size_t ahead) {
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(from) + ahead;
  for (std::size_t offset = 0; offset < kBytes; offset += 64)
    _mm_prefetch(reinterpret_cast<const char*>(first + offset), kHint);  // NOLINT(performance-no-int-to-ptr)
}

// The next kBytes of one of a tile's kStreams streams.
template <std::size_t kBytes, int kStreams>
[[gnu::always_inline]] inline void prefetch_stream(const void* from) {
  prefetch_ahead<kBytes, _MM_HINT_T0>(from, kStreamAhead<kStreams>);
}

}  // namespace
}  // namespace terrace::kernels
