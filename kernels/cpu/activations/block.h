// Activation blocks as they lie in memory and on the wire (docs/numerics.md 2). Plain structs: ISA files include them.
#pragma once

#include <cstdint>

namespace terrace::kernels {

// The 256 form has 260 bytes and is nobody else's Q8_K.
struct BlockA8x32 {
  float d;
  std::int8_t q[32];  // -127..127
};
struct BlockA8x256 {
  float d;
  std::int8_t q[256];
};
static_assert(sizeof(BlockA8x32) == 36 && sizeof(BlockA8x256) == 260);

// Below this largest magnitude a block is stored as zeros: 127 / amax stays finite, and d a normal number.
inline constexpr float kSmallestAmax = 0x1p-100f;

}  // namespace terrace::kernels
