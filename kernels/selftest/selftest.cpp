#include "kernels/selftest/selftest.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/base/parallel.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"
#include "kernels/registry/registry.h"

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

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [-2, 2).
  float value() { return static_cast<float>(static_cast<std::int32_t>(next() >> 32)) * 0x1p-30f; }

 private:
  std::uint64_t state_ = 20260101;
};

// Weights of any type as random blocks, drawn again until all their values are of ordinary size: a scale that is
// infinite would hide everything else.
std::vector<std::byte> random_weights(const WeightKernels& reference, std::uint64_t n_values, Random& random) {
  const TensorTypeInfo& type = info(reference.type);
  std::vector<std::byte> bytes(n_values / type.block_values * type.block_bytes);
  std::vector<float> values(type.block_values);
  const auto ordinary = [](float value) { return std::fabs(value) <= 4.0f; };  // false for NaN
  for (std::size_t at = 0; at < bytes.size(); at += type.block_bytes) {
    bool good = false;
    while (!good) {
      for (std::uint32_t i = 0; i < type.block_bytes; ++i) bytes[at + i] = static_cast<std::byte>(random.next());
      reference.dequantize_row(bytes.data() + at, type.block_values, values.data());
      good = true;
      for (const float value : values) good = good && ordinary(value);
    }
  }
  return bytes;
}

// One expert of a type and the rows it is asked for.
struct Sample {
  static constexpr std::uint32_t kModelWidth = 512, kWidth = 256;
  static constexpr std::size_t kRows = 3;
  ExpertShape shape;
  std::vector<std::byte> gate, up, down;
  std::vector<float> rows;  // [kRows, kModelWidth]
};

Sample make_sample(const WeightKernels& reference) {
  Random random;
  Sample sample;
  sample.shape = {reference.type, reference.type, reference.type, Sample::kModelWidth, Sample::kWidth};
  const std::uint64_t n_values = std::uint64_t{Sample::kModelWidth} * Sample::kWidth;
  sample.gate = random_weights(reference, n_values, random);
  sample.up = random_weights(reference, n_values, random);
  sample.down = random_weights(reference, n_values, random);
  sample.rows.resize(Sample::kRows * Sample::kModelWidth);
  for (float& value : sample.rows) value = random.value();
  return sample;
}

// The expert's outputs [kRows, kModelWidth] as this ISA gives them.
Result<std::vector<float>> compute(const Sample& sample, const CpuFeatures& cpu, Isa isa) {
  TERRACE_ASSIGN_OR_RETURN(const ExpertKernels kernels,
                           select_expert_kernels(sample.shape, cpu, isa, Activations::kQuantised));
  TERRACE_ASSIGN_OR_RETURN(const Ops ops, select_ops(cpu, isa));
  const std::size_t row = row_bytes(kernels.gate_class(), Sample::kModelWidth);
  std::vector<std::byte> rows(Sample::kRows * row);
  for (std::size_t i = 0; i < Sample::kRows; ++i)
    ops.quantize_row(kernels.gate_class(), sample.rows.data() + i * Sample::kModelWidth, Sample::kModelWidth,
                     rows.data() + i * row);
  const Pair pairs[Sample::kRows] = {{0, 0, 1.0f}, {1, 0, 1.0f}, {2, 0, 1.0f}};
  const RowsView view{kernels.gate_class(), rows.data(), row};

  Serial serial;
  Executor executor(serial, ops);
  std::vector<float> out(Sample::kRows * Sample::kModelWidth);
  std::uint8_t failed[Sample::kRows] = {};
  TERRACE_ASSIGN_OR_RETURN(const ExecStats stats,
                           executor.run_slots(
                               kernels,
                               [&](std::uint16_t) {
                                 return SlabView{sample.gate.data(), sample.up.data(), sample.down.data()};
                               },
                               {view, view, Sample::kRows, pairs}, out, failed, [] { return true; }));
  (void)stats;
  for (const std::uint8_t row_failed : failed)
    if (row_failed != 0) return Error(ErrorCode::kNotFinite, "the sample expert's output is not finite");
  return out;
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
  Sample sample;
  Result<std::vector<float>> expected = std::vector<float>();
  for (const WeightKernels& kernels : all_weight_kernels()) {
    if (kernels.isa == Isa::kScalar) {  // the first of its type
      sample = make_sample(kernels);
      expected = compute(sample, cpu, Isa::kScalar);
    }
    if (!cpu.has(kernels.isa)) continue;
    const auto found = compute(sample, cpu, kernels.isa);
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
