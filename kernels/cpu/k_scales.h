// The packed scales and mins that Q4_K and Q5_K share. Static inline: float_bits.h says why.
#pragma once

#include <cstdint>
#include <cstring>

namespace terrace::kernels {

struct KScales {
  std::uint8_t scale[8];  // 0..63, of sub-block j
  std::uint8_t min[8];    // 0..63
};

// 12 bytes hold eight 6-bit scales and eight 6-bit mins:
//   bytes 0..3    scale j (low 6 bits);     the top 2 bits are bits 4..5 of scale j + 4
//   bytes 4..7    min j (low 6 bits);       the top 2 bits are bits 4..5 of min j + 4
//   bytes 8..11   bits 0..3 of scale j + 4; the high nibble is bits 0..3 of min j + 4          j = 0..3
// Four bytes are handled at once as one little-endian word; no step carries from one byte into the next.
static inline KScales unpack_k_scales(const std::uint8_t packed[12]) {
  std::uint32_t word[3];
  std::memcpy(word, packed, sizeof word);
  const std::uint32_t scales[2] = {word[0] & 0x3f3f3f3fu, (word[2] & 0x0f0f0f0fu) | (word[0] >> 2 & 0x30303030u)};
  const std::uint32_t mins[2] = {word[1] & 0x3f3f3f3fu, (word[2] >> 4 & 0x0f0f0f0fu) | (word[1] >> 2 & 0x30303030u)};
  KScales unpacked;
  std::memcpy(unpacked.scale, scales, sizeof scales);
  std::memcpy(unpacked.min, mins, sizeof mins);
  return unpacked;
}

}  // namespace terrace::kernels
