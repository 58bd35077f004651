// Q4_0 weights times a8_32 rows on the CPU.
//
// Format   32 weights in 18 bytes: f16 d, then 16 bytes of nibbles, value i < 16 in the low nibble of byte i and value
//          i + 16 in its high one; value i = d * (nibble - 8).
// Result   Integer block sums, then one ordered f32 add per block (docs/numerics.md 3.1). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
// Source   GGUF as in ggml (block_q4_0, dequantize_row_q4_0).
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_q4_0_scalar;
DotRows dot_rows_q4_0_avx2;
DotRows dot_rows_q4_0_avx512_vnni;
DequantizeRow dequantize_row_q4_0;

}  // namespace terrace::kernels
