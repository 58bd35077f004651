// A matrix on a card and the rows that meet it. Plain, for code that is built without nvcc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::cuda {

// Lies in the card's memory, so that a step captured once can be replayed with other experts.
struct GemvGroup {
  const std::byte* w = nullptr;  // card memory, 16-byte aligned: [weight_rows, cols], rows without gaps; read
                                 // up to the next multiple of 16 bytes
  std::uint32_t first = 0;       // the group's rows are first .. first + n - 1
  std::uint32_t n = 0;           // 0: the group is passed over
};

}  // namespace terrace::kernels::cuda
