// Rows of floats as a batch carries them: each in the form that a weight type meets it in.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/parallel.h"
#include "kernels/cpu/activations/activations.h"

namespace terrace::kernels {

struct FloatRows {
  const float* values = nullptr;  // [n_rows, cols], finite
  std::size_t n_rows = 0, cols = 0;
};

// out = each row by `quantize_row`, one behind the other: n_rows * row_bytes(activation, cols) bytes, 4-byte aligned.
// One item of `parallel` a row. Allocates nothing.
void quantize_rows(QuantizeRowFn quantize_row, ActivationClass activation, const FloatRows& rows, std::byte* out,
                   Parallel& parallel);

// The same by this thread, in memory of its own: for rows that are made once.
std::vector<std::byte> quantized_rows(QuantizeRowFn quantize_row, ActivationClass activation, const FloatRows& rows);

}  // namespace terrace::kernels
