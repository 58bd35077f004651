#include "common/arena/hot_part.h"

#include <algorithm>
#include <cstddef>

namespace terrace::arena {

std::vector<std::uint8_t> choose_hot_part(std::span<const HotCandidate> candidates, std::uint64_t capacity) {
  struct Place {
    std::uint32_t rank;  // within its layer
    std::size_t candidate;
  };
  std::vector<Place> order;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0 && candidates[i].layer != candidates[i - 1].layer) rank = 0;
    if (candidates[i].bytes > 0) order.push_back({rank++, i});
  }
  std::stable_sort(order.begin(), order.end(), [](const Place& a, const Place& b) { return a.rank < b.rank; });
  std::vector<std::uint8_t> chosen(candidates.size(), 0);
  for (const Place& place : order) {
    if (candidates[place.candidate].bytes > capacity) break;
    capacity -= candidates[place.candidate].bytes;
    chosen[place.candidate] = 1;
  }
  return chosen;
}

}  // namespace terrace::arena
