// What a weight type offers on the CPU, with the types erased: the registry's rows and the folders of kernels/cpu
// meet here. Every variant equals the type's reference.cpp by == (docs/numerics.md 3).
#pragma once

#include <cstddef>

#include "common/base/tensor_type.h"
#include "kernels/cpu/isa.h"

namespace terrace::kernels {

// y[j * y_stride + r] = W[r] . x[j]      for r < n_weight_rows, j < n_x
//   w              [n_weight_rows, cols] in blocks of the type, rows w_row_bytes apart; any alignment that the block's
//                  size leaves (16 at least for the first row of a tensor)
//   x[j]           row j in the type's activation class, cols values; 4-byte aligned
//   cols           a multiple of the weight block and of the activation block
//   y              f32, overwritten; overlaps no input
// Pure, cannot fail, allocates nothing; the caller splits weight rows over threads. The result of (r, j) does not
// depend on n_weight_rows or n_x (P4).
using DotRowsFn = void (*)(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                           const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                           std::size_t y_stride);

// out[cols] = the values the row stands for (docs/formats.md), each rounded as the format's own definition rounds:
// equal by bits to tests/data/quant.
using DequantizeRowFn = void (*)(const std::byte* row, std::size_t cols, float* out);

struct WeightKernels {
  TensorType type = TensorType::kF32;
  ActivationClass activation = ActivationClass::kF32;
  Isa isa = Isa::kScalar;        // of dot_rows; logged once, shown by selftest and status
  const char* kernel_name = "";  // "dot_rows_q4_k_avx2"
  DotRowsFn dot_rows = nullptr;
  DequantizeRowFn dequantize_row = nullptr;
};

}  // namespace terrace::kernels
