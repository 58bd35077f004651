// "In 16 lanes" of docs/numerics.md on a card: sixteen neighbouring threads hold a lane each.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cuda/portable.h"

namespace terrace::kernels::cuda {

// The lanes' sum in lane 0; lane[i] + lane[i + 8], then + 4, + 2, + 1. All threads of the warp take part.
__device__ __forceinline__ float sum_of_lanes(float lane) {
#pragma unroll
  for (int half = kLanes / 2; half >= 1; half /= 2) lane = lane + __shfl_down_sync(~0u, lane, half, kLanes);
  return lane;
}

}  // namespace terrace::kernels::cuda
