#include "coordinator/app/sum_hashes.h"

#include <xxhash.h>

#include <algorithm>
#include <numeric>

namespace terrace::app {

void SumHashes::see(const arch::LayerTrace& trace) {
  const std::size_t position = first_ + trace.row;
  if (position >= by_position_.size()) by_position_.resize(position + 1);
  std::uint64_t& hash = by_position_[position];
  if (trace.layer == 0) hash = 0;
  const std::uint64_t seed = std::uint64_t{trace.layer} << 32 | position;
  hash += XXH3_64bits_withSeed(trace.sums.data(), trace.sums.size_bytes(), seed);
}

std::uint64_t SumHashes::of(std::size_t first, std::size_t end) const {
  const auto at = [&](std::size_t i) {
    return by_position_.begin() + static_cast<std::ptrdiff_t>(std::min(i, by_position_.size()));
  };
  return std::accumulate(at(first), at(end), std::uint64_t{0});
}

}  // namespace terrace::app
