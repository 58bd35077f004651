// Q6_K weights times a8_256 rows on the CPU.
//
// Format   256 weights in 210 bytes: 128 bytes with bits 0..3 of each code, 64 bytes with bits 4..5, int8 scale[16],
//          f16 d. Value i = d * scale[i / 16] * (code - 32). reference.cpp shows which bits lie where.
// Result   Integer block sums, then one ordered f32 add per block (docs/numerics.md 3.1). Variants == reference.cpp.
// Threads  Pure functions; the caller splits rows.
// Source   GGUF as in ggml (block_q6_K, dequantize_row_q6_K).
#pragma once

#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

DotRows dot_rows_q6_k_scalar;
DotRows dot_rows_q6_k_avx2;
DotRows dot_rows_q6_k_avx512_vnni;
DequantizeRow dequantize_row_q6_k;

}  // namespace terrace::kernels
