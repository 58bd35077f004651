// How fast the kernels of each weight type go on this machine, beside what its memory gives: with one x row, where
// reading weights is the limit, and with many, where arithmetic is.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "common/base/units.h"
#include "kernels/cpu/isa.h"

namespace terrace::app {

// The shape: rows of so many values, handed out so many at a time, as the executor hands out an expert's.
inline constexpr std::size_t kDotRateColumns = 2048;
inline constexpr std::size_t kDotRateRows = 128;
inline constexpr std::size_t kDotRateXRows = 64;  // of a prompt

struct DotRate {
  TensorType type = TensorType::kF32;
  const char* kernel_name = "";
  double gb_per_second = 0;       // one x row: 10^9 bytes of weights, all threads together; 4K pages
  double huge_gb_per_second = 0;  // the same in 2M pages; 0 where the system does not give such pages
  double prompt_gops = 0;         // kDotRateXRows x rows: 10^9 multiplications and additions a second
};

// Every type, with the kernel of `forced` or the widest one. Reads `buffer` bytes some times over; as of the bandwidth,
// the fastest window counts.
// Takes a few seconds. kOutOfMemory: as of the buffer. kUnsupported: as of the kernels.
Result<std::vector<DotRate>> measure_dot_rates(Parallel& parallel, const kernels::CpuFeatures& cpu,
                                               std::optional<kernels::Isa> forced, Bytes buffer);

}  // namespace terrace::app
