// BF16 weights times f32 rows on the CPU.
//
// Format   the upper 16 bits of an f32 each. Blocks of one value: cols is any number.
// Result   16 lanes of fma, then the tree (docs/numerics.md 3.2). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_bf16_scalar;
DotRows dot_rows_bf16_avx2;
DotRows dot_rows_bf16_avx512_vnni;
DequantizeRow dequantize_row_bf16;

}  // namespace terrace::kernels
