#include "kernels/card/slices.h"

#include <algorithm>

#include "common/base/check.h"

namespace terrace::kernels {

void Slicer::begin(std::span<const Pair> pairs, std::uint32_t n_rows, const SliceLimits& limits) {
  TERRACE_CHECK(limits.rows > 0 && limits.pairs > 0 && limits.pairs_of_row > 0, "slices that hold something");
  pairs_ = pairs;
  n_rows_ = n_rows;
  limits_ = limits;
  cursor_ = 0;
  window_ = 0;
}

const CardSlice* Slicer::next() {
  while (window_ < n_rows_) {
    fill();
    if (cursor_ == pairs_.size()) {
      cursor_ = 0;
      window_ += slice_.n_rows;
    }
    if (!slice_.pairs.empty()) return &slice_;
  }
  return nullptr;
}

// Takes the window's pairs from the cursor on, as many as fit.
void Slicer::fill() {
  slice_.first_row = window_;
  slice_.n_rows = std::min(limits_.rows, n_rows_ - window_);
  slice_.pairs.clear();
  slice_.most_pairs_of_row = 0;
  count_.assign(slice_.n_rows, 0);
  for (; cursor_ < pairs_.size() && slice_.pairs.size() < limits_.pairs; ++cursor_) {
    const std::uint32_t row = pairs_[cursor_].row - window_;  // wraps below the window, and is then too large as well
    if (row >= slice_.n_rows) continue;
    if (count_[row] == limits_.pairs_of_row) return;
    slice_.pairs.push_back(static_cast<std::uint32_t>(cursor_));
    slice_.most_pairs_of_row = std::max(slice_.most_pairs_of_row, ++count_[row]);
  }
}

}  // namespace terrace::kernels
