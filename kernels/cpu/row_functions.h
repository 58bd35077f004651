// The two functions that a weight type offers, as plain function types: ISA files see this header and no other door.
#pragma once

#include <cstddef>

namespace terrace::kernels {

// y[j * y_stride + r] = W[r] . x[j]      for r < n_weight_rows, j < n_x
//   w              [n_weight_rows, cols] in blocks of the type, rows w_row_bytes apart; any alignment that the block's
//                  size leaves (16 at least for the first row of a tensor)
//   x[j]           row j in the type's activation class, cols values; 4-byte aligned; int8 values in -127..127
//   cols           a multiple of the weight block and of the activation block
//   y              f32, overwritten; overlaps no input
// Pure, cannot fail, allocates nothing; the caller splits weight rows over threads. Reads no byte beyond a row's last
// block. The result of (r, j) does not depend on n_weight_rows or n_x (P4).
using DotRows = void(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows, const std::byte* const* x,
                     std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride);
using DotRowsFn = DotRows*;

// out[cols] = the values the row stands for (docs/formats.md), each rounded as the format's own definition rounds:
// equal by bits to tests/data/quant.
using DequantizeRow = void(const std::byte* row, std::size_t cols, float* out);
using DequantizeRowFn = DequantizeRow*;

}  // namespace terrace::kernels
