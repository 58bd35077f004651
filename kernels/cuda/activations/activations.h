// Rows of x quantised on a card (docs/numerics.md 2), equal by == to kernels/cpu/activations: in the wire's form, or as
// the card rows that its matrix kernels want (kernels/cuda/weights/card_rows.h).
// Threads  As Stream. Launches only.
// Errors   kInvalidArgument: a shape that cannot be. kInternal: the launch was refused; names the card and the sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

struct QuantizeArgs {
  ActivationClass activation = ActivationClass::kA8x32;  // kF32 copies
  const float* x = nullptr;                              // card memory [n_rows, cols]; finite: mark_not_finite() tells
  std::size_t x_stride = 0;                              // floats between rows
  std::uint32_t n_rows = 0;                              // at most 65,535
  std::uint32_t cols = 0;                                // a multiple of the class's block
  std::byte* out = nullptr;                              // card memory [n_rows]
  std::size_t out_stride = 0;                            // bytes
};

// Rows of row_bytes(activation, cols); out_stride is a multiple of 4.
Status quantize_rows(const Stream& stream, const QuantizeArgs& args);
// Card rows; out_stride is a multiple of 16 and not below card_row_layout().bytes.
Status quantize_card_rows(const Stream& stream, const QuantizeArgs& args);

struct CardRowsArgs {
  ActivationClass activation = ActivationClass::kA8x32;
  const std::byte* rows = nullptr;  // card memory [n_rows] in the wire's form, 4-byte aligned
  std::size_t row_stride = 0;       // bytes, a multiple of 4
  std::uint32_t n_rows = 0;
  std::uint32_t cols = 0;
  std::byte* out = nullptr;  // as quantize_card_rows()
  std::size_t out_stride = 0;
};
// Card rows of rows that were quantised elsewhere.
Status make_card_rows(const Stream& stream, const CardRowsArgs& args);

// ---- for kernels that quantise what they have just computed --------------------------------------------------------

// Card rows that a launch makes of its values.
struct CardRowsOut {
  ActivationClass activation = ActivationClass::kF32;
  std::byte* rows = nullptr;  // card memory; null: none
  std::size_t stride = 0;     // as out_stride of quantize_card_rows()
};

// Where a row's first failure (a value that is not finite) is noted: the lowest code wins, so codes rise with time.
inline constexpr std::uint32_t kNoFailure = 0xffffffff;  // before a step

}  // namespace terrace::kernels::cuda
