// The driver's results as ours. For this folder's .cpp files.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <string_view>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

inline Status driver_status(const CardInfo& card, cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // a refused call leaves its error behind, which the next launch would report as its own
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
  return Error(code, fmt::format("card {} ({}): {}: {}", card.index, card.name, what, cudaGetErrorString(error)));
}

inline Status make_current(const CardInfo& card) {
  return driver_status(card, cudaSetDevice(card.index), "making it the current card");
}

}  // namespace terrace::kernels::cuda
