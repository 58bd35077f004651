// Q8_0 weights times a8_32 rows on the CPU.
//
// Format   32 weights in 34 bytes: f16 d, then int8 q[32]; value i = d * q[i]. q = -128 may occur.
// Result   Integer block sums, then one ordered f32 add per block (docs/numerics.md 3.1). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
// Source   GGUF as in ggml (block_q8_0, dequantize_row_q8_0).
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_q8_0_scalar;
DotRows dot_rows_q8_0_avx2;
DotRows dot_rows_q8_0_avx512_vnni;
DequantizeRow dequantize_row_q8_0;

}  // namespace terrace::kernels
