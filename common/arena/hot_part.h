// Which slabs of a share lie in its fastest memory. Until ranks say which experts are used most, that is the first
// experts of every layer: each layer then has the same part of its work there, which runs beside the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace terrace::arena {

struct HotCandidate {
  std::uint32_t layer = 0;
  std::uint64_t bytes = 0;  // stored there; 0: cannot lie there
};

// [candidates] 1: chosen. The candidates rise by layer, then expert. The first of each layer, then the second of each,
// until one does not fit into what is left of `capacity`: less than the largest candidate is then unused.
std::vector<std::uint8_t> choose_hot_part(std::span<const HotCandidate> candidates, std::uint64_t capacity);

}  // namespace terrace::arena
