// A batch cut into what a card's workspace holds at once. Plain arithmetic, tested without a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/executor/executor.h"

namespace terrace::kernels {

// Of one slice.
struct SliceLimits {
  std::uint32_t rows = 0;
  std::uint32_t pairs = 0;
  std::uint32_t pairs_of_row = 0;
};

// Pairs of the rows first_row .. first_row + n_rows - 1, still by expert, then row.
struct CardSlice {
  std::uint32_t first_row = 0;
  std::uint32_t n_rows = 0;
  std::vector<std::uint32_t> pairs;  // indices into the batch's pairs
  std::uint32_t most_pairs_of_row = 0;
};

// Hands out slices until every pair was in one. Sums are integers: how pairs are cut changes no bit.
// Nothing is allocated once the largest slice was seen.
class Slicer {
 public:
  // `pairs` are borrowed until the next begin(); rows < n_rows. Every limit is at least 1.
  void begin(std::span<const Pair> pairs, std::uint32_t n_rows, const SliceLimits& limits);
  // The next slice, never an empty one; null at the end. Valid until the next call.
  const CardSlice* next();

 private:
  void fill();

  std::span<const Pair> pairs_;
  std::uint32_t n_rows_ = 0;
  SliceLimits limits_;
  std::size_t cursor_ = 0;    // the first pair that the window's slices have not looked at
  std::uint32_t window_ = 0;  // first row of the window
  CardSlice slice_;
  std::vector<std::uint32_t> count_;  // [rows of the window] pairs of each in the slice
};

}  // namespace terrace::kernels
