// XXH3-64 of the int64 sums of routed experts (docs/numerics.md 5), layer by layer: equal wherever experts are computed
// and however a prompt was cut into steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/arch/trunk.h"

namespace terrace::app {

// Of one stream, while its trunk's traces are seen here.
class SumHashes {
 public:
  // The rows of the steps that come are positions `first`, first + 1, ... of the stream; computed before, they are
  // forgotten.
  void begin(std::size_t first) { first_ = first; }
  void see(const arch::LayerTrace& trace);
  // Of positions first .. end - 1: the hash of each layer's sums of each, its seed made of layer and position, added up
  // modulo 2^64.
  std::uint64_t of(std::size_t first, std::size_t end) const;

 private:
  std::size_t first_ = 0;
  std::vector<std::uint64_t> by_position_;
};

}  // namespace terrace::app
