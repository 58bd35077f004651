// How fast this machine's memory can be read by the threads that compute: the limit beside which a decode step's
// reading of weights is put.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/base/units.h"
#include "kernels/cpu/isa.h"

namespace terrace::app {

struct ReadRate {
  bool huge_pages = false;  // 2M pages, else 4K
  int n_streams = 1;        // read side by side by each thread
  std::size_t prefetch_bytes = 0;
  double gb_per_second = 0;  // 10^9 bytes, all threads together
};

struct ReadBandwidth {
  std::size_t threads = 0;
  kernels::Isa isa = kernels::Isa::kScalar;
  Bytes buffer;
  std::vector<ReadRate> rates;  // {4K, 2M} x {1, 2, 4 streams} x {prefetch 0, 2, 4, 8 KB}
  std::string note;             // what is missing from `rates`, and why; normally empty

  const ReadRate& best() const;
};

// Much larger than the last-level cache, so that what is read comes from memory: 4 times its size as the C library
// tells it (on some machines that of all sockets' caches together), from 256M to 1G.
Bytes default_read_buffer();

// Reads a buffer of `buffer` bytes (a multiple of kReadUnit; rounded down) in each way some times over; the rate is
// that of the fastest kReadWindow bytes.
// Takes a second or two. Rates of 2M pages are left out, with a note, where the system does not give such pages.
// kInvalidArgument: less than one unit. kOutOfMemory: not that much is free.
inline constexpr std::size_t kReadUnit = std::size_t{4} << 20;
inline constexpr std::size_t kReadWindow = 8 * kReadUnit;
Result<ReadBandwidth> measure_read_bandwidth(Parallel& parallel, kernels::Isa isa, Bytes buffer);

}  // namespace terrace::app
