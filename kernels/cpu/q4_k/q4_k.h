// Q4_K weights times a8_256 rows on the CPU.
//
// Format   256 weights in 144 bytes: f16 d, f16 dmin, 12 bytes of packed 6-bit scales and mins (k_scales.h), 128 bytes
//          of nibbles; bytes 32k..32k+31 hold sub-block 2k in the low nibbles and 2k+1 in the high ones. Value i of
//          sub-block j = d * scale[j] * nibble - dmin * min[j].
// Result   Integer block sums, then one ordered f32 add per block (docs/numerics.md 3.1). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
// Source   GGUF as in ggml (block_q4_K, dequantize_row_q4_K).
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_q4_k_scalar;
DotRows dot_rows_q4_k_avx2;
DotRows dot_rows_q4_k_avx512_vnni;
DequantizeRow dequantize_row_q4_k;

}  // namespace terrace::kernels
