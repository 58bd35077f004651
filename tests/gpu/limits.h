// What a card can do at most, as small kernels measure it that do nothing else: the limits that others are held
// against.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::test {

// Both launch on every multiprocessor and return how many multiply-adds that is. `sink`: card memory of four bytes,
// written never, so that nothing is left out. kInternal: the launch was refused.

// f32 fma, from registers to registers.
Result<double> launch_f32_limit(const kernels::cuda::Stream& stream, float* sink);
// int8 products with int32 sums on the tensor cores, by the instruction that the products of many rows have: wgmma on
// sm_90a, mma elsewhere.
Result<double> launch_int8_limit(const kernels::cuda::Stream& stream, std::int32_t* sink);
// A kernel that does nothing.
Status launch_nothing(const kernels::cuda::Stream& stream);

}  // namespace terrace::test
