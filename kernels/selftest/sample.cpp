#include "kernels/selftest/sample.h"

#include <cmath>

#include "common/base/parallel.h"
#include "common/base/split_mix.h"
#include "kernels/cpu/activations/rows.h"
#include "kernels/registry/registry.h"

namespace terrace::kernels::selftest {
namespace {

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  std::uint64_t next() { return split_mix(state_ += kSplitMixStep); }
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

}  // namespace

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

std::vector<std::byte> quantised_rows(const Sample& sample, ActivationClass activation, const Ops& ops) {
  return quantized_rows(ops.quantize_row, activation, {sample.rows.data(), Sample::kRows, Sample::kModelWidth});
}

Result<std::vector<float>> compute(const Sample& sample, const CpuFeatures& cpu, Isa isa) {
  TERRACE_ASSIGN_OR_RETURN(const ExpertKernels kernels,
                           select_expert_kernels(sample.shape, cpu, isa, Activations::kQuantised));
  TERRACE_ASSIGN_OR_RETURN(const Ops ops, select_ops(cpu, isa));
  const std::vector<std::byte> rows = quantised_rows(sample, kernels.gate_class(), ops);
  const RowsView view{kernels.gate_class(), rows.data(), rows.size() / Sample::kRows};

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
                               {view, view, Sample::kRows, kPairs}, out, failed, [] { return true; }));
  (void)stats;
  for (const std::uint8_t row_failed : failed)
    if (row_failed != 0) return Error(ErrorCode::kNotFinite, "the sample expert's output is not finite");
  return out;
}

}  // namespace terrace::kernels::selftest
