#include "kernels/cuda/device/overlap.cuh"

#include "kernels/cuda/device/probe.h"
namespace terrace::kernels::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

bool has_code_for_current_card() {
  cudaFuncAttributes attributes;
  const bool has = cudaFuncGetAttributes(&attributes, nothing) == cudaSuccess;
  cudaGetLastError();
  return has;
}

}  // namespace terrace::kernels::cuda
