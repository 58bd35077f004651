// Rows of f32 quantised on a card, as kernels/cpu/activations does it (docs/numerics.md 2), equal by ==.
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

struct QuantizeArgs {
  ActivationClass activation = ActivationClass::kA8x32;  // kF32 copies
  const float* x = nullptr;    // card memory [n_rows, cols]; finite, which mark_not_finite() tells
  std::size_t x_stride = 0;    // floats between rows
  std::uint32_t n_rows = 0;    // at most 65,535
  std::uint32_t cols = 0;      // a multiple of the class's block
  std::byte* out = nullptr;    // card memory [n_rows] rows of row_bytes(activation, cols), 4-byte aligned
  std::size_t out_stride = 0;  // bytes, a multiple of 4
};

// kInvalidArgument: shapes. kInternal: the launch was refused; the text names the card and the sizes.
Status quantize_rows(const Stream& stream, const QuantizeArgs& args);

}  // namespace terrace::kernels::cuda
