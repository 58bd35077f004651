// Random weights, written straight as blocks of their type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/split_mix.h"
#include "common/base/tensor_type.h"

namespace terrace::tools {

// SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing function, so any place of a stream costs the same.
class Random {
 public:
  // The stream of one chunk of one tensor.
  Random(std::uint64_t seed, std::uint64_t tensor, std::uint64_t chunk)
      : state_(split_mix(split_mix(split_mix(seed) ^ tensor) ^ chunk)) {}

  std::uint64_t next() { return split_mix(state_ += kSplitMixStep); }
  void fill(std::span<std::byte> out);

 private:
  std::uint64_t state_;
};

// True for the types that fill_weights() writes.
bool can_fill(TensorType type);

// Whole blocks of values with mean about 0 and standard deviation about `deviation`.
void fill_weights(TensorType type, float deviation, Random random, std::span<std::byte> out);

// f32 values in [0.95, 1.05): norm weights.
void fill_norm(Random random, std::span<std::byte> out);

}  // namespace terrace::tools
