// "In 16 lanes" of docs/numerics.md, written for reading: what follows the accumulation. Static inline: float_bits.h
// says why.
#pragma once

namespace terrace::kernels {

inline constexpr int kLanes = 16;

// lane[i] + lane[i + 8], then + 4, + 2, + 1. Overwrites the lanes.
static inline float sum_lanes(float lane[kLanes]) {
  for (int half = kLanes / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  return lane[0];
}

}  // namespace terrace::kernels
