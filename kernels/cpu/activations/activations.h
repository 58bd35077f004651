// Activation rows in the form that a weight type meets them in (docs/numerics.md 2).
//
// Rows are plain bytes: `kF32` the values; `kA8x32` and `kA8x256` blocks of f32 d and int8 q[n], with no padding. They
// travel on the wire as they lie in memory. Our a8_256 block has 260 bytes: it is nobody else's Q8_K.
#pragma once

#include <cstddef>

#include "common/base/tensor_type.h"
#include "kernels/cpu/activations/block.h"

namespace terrace::kernels {

// out = the row x [cols] in `activation`; out holds row_bytes(activation, cols) bytes, 4-byte aligned. x is finite
// (all_finite() was asked). kF32 copies.
using QuantizeRowFn = void (*)(ActivationClass activation, const float* x, std::size_t cols, std::byte* out);

void quantize_row_scalar(ActivationClass activation, const float* x, std::size_t cols, std::byte* out);
void quantize_row_avx2(ActivationClass activation, const float* x, std::size_t cols, std::byte* out);
void quantize_row_avx512_vnni(ActivationClass activation, const float* x, std::size_t cols, std::byte* out);

}  // namespace terrace::kernels
