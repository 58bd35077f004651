// A dense matrix times rows of x on a card: the trunk's projections, the router's logits, the head. The kernels are
// those of expert_gemv, for one matrix.
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

struct DenseArgs {
  TensorType type = TensorType::kF32;
  const std::byte* w = nullptr;  // card memory, 16-byte aligned: [weight_rows, cols]
  std::uint32_t weight_rows = 0;
  std::uint32_t cols = 0;
  const std::byte* x = nullptr;  // card memory [n_rows]: card rows of gemv_activation(type)
  std::size_t x_stride = 0;      // bytes, a multiple of 16
  std::uint32_t n_rows = 0;
  float* y = nullptr;        // card memory [n_rows, weight_rows]
  std::size_t y_stride = 0;  // floats
};

// y[j, r] = w[r] . x[j], equal to kernels/cpu/<type>/reference.cpp by == for any n_rows. Errors as expert_gemv().
Status dense(const Stream& stream, const DenseArgs& args);

}  // namespace terrace::kernels::cuda
