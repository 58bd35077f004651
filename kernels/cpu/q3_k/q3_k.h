// Q3_K weights times a8_256 rows on the CPU.
//
// Format   256 weights in 110 bytes: 32 bytes with bit 2 of each code, 64 bytes with bits 0..1, 12 bytes of packed
//          6-bit scales, f16 d. Value i = d * (scale[i / 16] - 32) * (code - 4). block.h says which bits lie where.
// Result   Integer block sums, then one ordered f32 add per block (docs/numerics.md 3.1). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
// Source   GGUF as in ggml (block_q3_K, dequantize_row_q3_K).
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_q3_k_scalar;
DotRows dot_rows_q3_k_avx2;
DotRows dot_rows_q3_k_avx512_vnni;
DequantizeRow dequantize_row_q3_k;

}  // namespace terrace::kernels
