// The reference of the float weight types (docs/numerics.md 3.2), over the stored element and its exact widening.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/cpu/lanes.h"

namespace terrace::kernels {

template <class Element, float (*widen)(Element)>
static float dot_in_lanes(const Element* w, const float* x, std::size_t cols) {
  float lane[kLanes] = {};
  for (std::size_t i = 0; i < cols; ++i) lane[i % kLanes] = std::fma(widen(w[i]), x[i], lane[i % kLanes]);
  return sum_lanes(lane);
}

// DotRows of a float type.
template <class Element, float (*widen)(Element)>
static void dot_rows_in_lanes(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                              const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                              std::size_t y_stride) {
  for (std::size_t j = 0; j < n_x; ++j)
    for (std::size_t r = 0; r < n_weight_rows; ++r)
      y[j * y_stride + r] = dot_in_lanes<Element, widen>(reinterpret_cast<const Element*>(w + r * w_row_bytes),
                                                         reinterpret_cast<const float*>(x[j]), cols);
}

// DequantizeRow of a float type.
template <class Element, float (*widen)(Element)>
static void widen_row(const std::byte* row, std::size_t cols, float* out) {
  const Element* values = reinterpret_cast<const Element*>(row);
  for (std::size_t i = 0; i < cols; ++i) out[i] = widen(values[i]);
}

}  // namespace terrace::kernels
