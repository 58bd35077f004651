// What the folders that launch kernels share: the checks around a launch, and its errors. Nothing is formatted unless
// something failed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

// The largest second and third dimension of a grid.
inline constexpr std::uint32_t kMaxGridRows = 65535;

// Architectures from this one on begin a kernel while the one before it ends (overlap.cuh).
inline constexpr int kOverlapFrom = 9;

constexpr std::uint32_t divide_up(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

// A shape of the call, for messages.
struct LaunchSize {
  const char* name;
  std::uint64_t value;
};

// kInvalidArgument: "RMSNorm cannot be launched with rows 0, values 128".
Error invalid_shape(std::string_view operation, std::initializer_list<LaunchSize> sizes);
// Makes the stream's card the thread's current one, which a launch needs.
Status before_launch(const Stream& stream);
// The error of the launch just made, if any: "card 0 (NVIDIA H200): RMSNorm, rows 4, values 2048: <the driver's
// words>".
Status after_launch(const Stream& stream, std::string_view operation, std::initializer_list<LaunchSize> sizes);

}  // namespace terrace::kernels::cuda
