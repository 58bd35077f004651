#include "kernels/selftest/selftest.h"

#include <fmt/core.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ops/ops.h"
#include "kernels/registry/registry.h"
#include "kernels/selftest/sample.h"

namespace terrace::kernels {
namespace {

// tests/data/contract/index.json "exp": over x_i = float(i - 2^19) * 2^-12, the sum of bits * (2i + 1) mod 2^64.
constexpr std::uint64_t kExpChecksum = 0x3bd1d71d3986d6f8;
constexpr std::uint64_t kSiluChecksum = 0xc927e79cd68dc52f;

using FloatFn = void (*)(const float* x, std::size_t n, float* y);

std::uint64_t checksum(FloatFn fn) {
  constexpr std::int32_t kInputs = 1 << 20;
  constexpr std::int32_t kAtOnce = 1 << 10;
  float x[kAtOnce], y[kAtOnce];
  std::uint64_t sum = 0;
  for (std::int32_t first = 0; first < kInputs; first += kAtOnce) {
    for (std::int32_t i = 0; i < kAtOnce; ++i) x[i] = static_cast<float>(first + i - kInputs / 2) * 0x1p-12f;
    fn(x, kAtOnce, y);
    for (std::int32_t i = 0; i < kAtOnce; ++i)
      sum += std::bit_cast<std::uint32_t>(y[i]) * (2 * static_cast<std::uint64_t>(first + i) + 1);
  }
  return sum;
}

void test_functions(const CpuFeatures& cpu, std::vector<SelftestRow>& rows) {
  const auto test = [&](const char* what, FloatFn Ops::*fn, std::uint64_t expected) {
    for (const Ops& ops : all_ops())
      if (cpu.has(ops.isa)) rows.push_back({what, ops.isa, "", checksum(ops.*fn) == expected});
  };
  test("EXP", &Ops::exp, kExpChecksum);
  test("SILU", &Ops::silu, kSiluChecksum);
}

void test_types(const CpuFeatures& cpu, std::vector<SelftestRow>& rows) {
  selftest::Sample sample;
  Result<std::vector<float>> expected = std::vector<float>();
  for (const WeightKernels& kernels : all_weight_kernels()) {
    if (kernels.isa == Isa::kScalar) {  // the first of its type
      sample = selftest::make_sample(kernels);
      expected = selftest::compute(sample, cpu, Isa::kScalar);
    }
    if (!cpu.has(kernels.isa)) continue;
    const auto found = selftest::compute(sample, cpu, kernels.isa);
    const bool equal = expected.ok() && found.ok() &&
                       std::memcmp(expected->data(), found->data(), expected->size() * sizeof(float)) == 0;
    rows.push_back({std::string(info(kernels.type).name), kernels.isa, kernels.kernel_name, equal});
  }
}

}  // namespace

std::vector<SelftestRow> run_selftest(const CpuFeatures& cpu) {
  std::vector<SelftestRow> rows;
  test_functions(cpu, rows);
  test_types(cpu, rows);
  return rows;
}

Status check(const std::vector<SelftestRow>& rows) {
  for (const SelftestRow& row : rows)
    if (!row.ok)
      return Error(ErrorCode::kInternal,
                   fmt::format("self check: {} on {} {}gives other bits than the contract; this machine or this build "
                               "computes wrongly",
                               row.what, name(row.isa), row.kernel_name.empty() ? "" : "(" + row.kernel_name + ") "));
  return {};
}

}  // namespace terrace::kernels
