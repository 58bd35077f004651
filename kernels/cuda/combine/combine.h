// The sum over experts on a card, as integers (docs/numerics.md 5): equal by == to kernels/cpu/ops, whatever the order.
// Memory   All pointers are card memory.
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

// Sums are int64 in units of 2^-shift.
inline constexpr int kMinShift = 16;
inline constexpr int kMaxShift = 36;

struct AddFixedArgs {
  const float* out = nullptr;  // expert outputs [.., n], out_stride floats apart
  std::size_t out_stride = 0;
  const std::int32_t* slots = nullptr;  // [n_rows, n_slots]: which outputs a row adds; negative: none (another leg's)
  const float* weights = nullptr;       // [n_rows, n_slots]
  std::uint32_t n_slots = 0;
  std::uint32_t n_rows = 0;  // at most 65,535
  std::uint32_t n = 0;       // values of an output: d_model
  int shift = 24;
  std::int64_t* sums = nullptr;    // [n_rows, n], added to
  std::uint8_t* failed = nullptr;  // [n_rows]: set to 1, sums of the row then undefined, where a weighted output
                                   // is not finite or not below 2^(51 - shift)
};
Status add_fixed(const Stream& stream, const AddFixedArgs& args);

struct FromFixedArgs {
  const std::int64_t* sums = nullptr;  // [n_rows, n]
  std::uint32_t n_rows = 0;
  std::uint32_t n = 0;
  int shift = 24;
  float* x = nullptr;              // [n_rows, n]: float(double(sum) * 2^-shift)
  bool add = false;                // added to x instead (the residual): one f32 add
  std::uint8_t* failed = nullptr;  // [n_rows]: set to 1 where some |sum| >= 2^51
};
Status from_fixed(const Stream& stream, const FromFixedArgs& args);

}  // namespace terrace::kernels::cuda
