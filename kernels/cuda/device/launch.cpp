#include "kernels/cuda/device/launch.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <string>

#include "kernels/cuda/device/driver.h"

namespace terrace::kernels::cuda {
namespace {

std::string describe(std::initializer_list<LaunchSize> sizes) {
  std::string text;
  for (const LaunchSize& size : sizes) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", size.name, size.value);
  return text;
}

}  // namespace

Error invalid_shape(std::string_view operation, std::initializer_list<LaunchSize> sizes) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} cannot be launched with {}", operation, describe(sizes)));
}

Status before_launch(const Stream& stream) { return make_current(stream.card()); }

Status after_launch(const Stream& stream, std::string_view operation, std::initializer_list<LaunchSize> sizes) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return driver_status(stream.card(), error, fmt::format("{}, {}", operation, describe(sizes)));
}

}  // namespace terrace::kernels::cuda
