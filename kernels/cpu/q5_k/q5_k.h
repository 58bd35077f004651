// Q5_K weights times a8_256 rows on the CPU.
//
// Format   256 weights in 176 bytes: f16 d, f16 dmin, 12 bytes of packed 6-bit scales and mins (k_scales.h), 32 bytes
//          with bit 4 of each code, 128 bytes with bits 0..3 as in Q4_K. Value i of sub-block j
//          = d * scale[j] * code - dmin * min[j].
// Result   Integer block sums, then one ordered f32 add per block (docs/numerics.md 3.1). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
// Source   GGUF as in ggml (block_q5_K, dequantize_row_q5_K).
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_q5_k_scalar;
DotRows dot_rows_q5_k_avx2;
DotRows dot_rows_q5_k_avx512_vnni;
DequantizeRow dequantize_row_q5_k;

}  // namespace terrace::kernels
