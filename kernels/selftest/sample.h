// The expert that every ISA and card is tried with, and what it gives. For this folder's .cpp files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/executor/executor.h"

namespace terrace::kernels::selftest {

// One expert of a type and the rows it is asked for.
struct Sample {
  static constexpr std::uint32_t kModelWidth = 512, kWidth = 256;
  static constexpr std::size_t kRows = 3;
  ExpertShape shape;
  std::vector<std::byte> gate, up, down;
  std::vector<float> rows;  // [kRows, kModelWidth]
};

Sample make_sample(const WeightKernels& reference);

// The sample's rows in a class, as batches carry them.
std::vector<std::byte> quantised_rows(const Sample& sample, ActivationClass activation, const Ops& ops);
// Each row asks the one expert.
inline constexpr Pair kPairs[Sample::kRows] = {{0, 0, 1.0f}, {1, 0, 1.0f}, {2, 0, 1.0f}};

// The expert's outputs [kRows, kModelWidth] as this ISA gives them.
Result<std::vector<float>> compute(const Sample& sample, const CpuFeatures& cpu, Isa isa);

}  // namespace terrace::kernels::selftest
