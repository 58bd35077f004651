#include "common/manifest/probe_slab.h"

#include <algorithm>

namespace terrace::manifest {

void make_probe_slab(std::uint32_t layer, std::uint32_t expert, std::span<std::byte> out) {
  constexpr std::size_t kNibbles = 16;
  std::fill(out.begin(), out.end(), std::byte{0x3c});
  std::uint64_t id = std::uint64_t{layer} << 32 | expert;
  for (std::size_t i = 0; i < std::min(kNibbles, out.size()); ++i, id >>= 4)
    out[out.size() - 1 - i] = static_cast<std::byte>(0x30 | (id & 0xf));
}

}  // namespace terrace::manifest
