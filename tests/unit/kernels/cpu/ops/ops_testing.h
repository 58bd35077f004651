// What the tests of the operations share: the tables that this machine runs, and equality to the bit.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

#include "kernels/cpu/ops/ops.h"

namespace terrace::kernels {
inline void PrintTo(const Ops& ops, std::ostream* out) { *out << name(ops.isa); }
}  // namespace terrace::kernels

namespace terrace::test {

inline std::vector<kernels::Ops> tables_of_this_machine() {
  const kernels::CpuFeatures cpu = kernels::detect_cpu_features();
  std::vector<kernels::Ops> tables;
  for (const kernels::Ops& ops : kernels::all_ops())
    if (cpu.has(ops.isa)) tables.push_back(ops);
  return tables;
}

inline const kernels::Ops& scalar_ops() { return kernels::all_ops().front(); }

// Equal bits, or two NaNs.
inline bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

// The first index at which the two differ; nothing if they are equal.
inline std::optional<std::size_t> first_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return i;
  return std::nullopt;
}

}  // namespace terrace::test

// Equal by bits (two NaNs are equal); says where they are not.
#define EXPECT_SAME_FLOATS(actual, expected)                                                                         \
  do {                                                                                                               \
    const auto& actual_ = (actual);                                                                                  \
    const auto& expected_ = (expected);                                                                              \
    const auto where_ = ::terrace::test::first_difference(actual_, expected_);                                       \
    EXPECT_FALSE(where_.has_value()) << "at " << *where_ << ": " << std::hexfloat << actual_[*where_] << " against " \
                                     << expected_[*where_];                                                          \
  } while (false)
