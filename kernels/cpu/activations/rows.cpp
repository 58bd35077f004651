#include "kernels/cpu/activations/rows.h"

namespace terrace::kernels {

void quantize_rows(QuantizeRowFn quantize_row, ActivationClass activation, const FloatRows& rows, std::byte* out,
                   Parallel& parallel) {
  const std::size_t bytes = row_bytes(activation, rows.cols);
  parallel.run(rows.n_rows, [&](std::size_t row, std::size_t) {
    quantize_row(activation, rows.values + row * rows.cols, rows.cols, out + row * bytes);
  });
}

std::vector<std::byte> quantized_rows(QuantizeRowFn quantize_row, ActivationClass activation, const FloatRows& rows) {
  std::vector<std::byte> out(rows.n_rows * row_bytes(activation, rows.cols));
  Serial serial;
  quantize_rows(quantize_row, activation, rows, out.data(), serial);
  return out;
}

}  // namespace terrace::kernels
