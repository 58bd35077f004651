// Kernels that begin while the one before them ends (programmatic dependent launch, from sm_90 on): a step of one row
// is hundreds of short kernels, and between two of them a card otherwise waits about as long as one takes.
//
// A kernel launched so calls let_next_begin() first, may then do what needs nothing of the kernels before it (weights
// are brought to shared memory), and calls wait_for_previous() in every thread before it reads what they wrote or
// writes anything. Then everything before it on the stream is done, and its writes are seen.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/device/launch.h"

namespace terrace::kernels::cuda {

__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

inline bool overlaps_launches(const CardInfo& card) { return card.compute_major >= kOverlapFrom; }

// kernel<<<grid, threads, shared_bytes, stream>>>(arguments...), overlapped where `overlap`: overlaps_launches(). What
// went wrong is the launch's own error (launch.h).
template <class... Parameters, class... Arguments>
void launch_overlapped(bool overlap, void (*kernel)(Parameters...), dim3 grid, dim3 threads, std::size_t shared_bytes,
                       CUstream_st* stream, const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  (void)cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace terrace::kernels::cuda
