#include "coordinator/app/dot_rates.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "coordinator/app/bandwidth.h"
#include "coordinator/app/best_rate.h"
#include "coordinator/app/pages.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/registry/registry.h"

namespace terrace::app {
namespace {

constexpr int kDotPasses = 3;
constexpr int kPromptPasses = 20;
// Every byte of the weights: an ordinary number as f16, bf16 and f32, so that no arithmetic meets subnormals.
constexpr int kWeightByte = 0x3c;
constexpr std::size_t kPromptItems = 4;  // for each worker: enough for the clock

// x rows in one type's activation class.
class XRows {
 public:
  XRows(const kernels::Ops& ops, ActivationClass activation) : stride_(row_bytes(activation, kDotRateColumns)) {
    std::vector<float> x(kDotRateColumns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    bytes_.resize(kDotRateXRows * stride_);
    for (std::size_t j = 0; j < kDotRateXRows; ++j) {
      ops.quantize_row(activation, x.data(), x.size(), bytes_.data() + j * stride_);
      rows_.push_back(bytes_.data() + j * stride_);
    }
  }
  const std::byte* const* rows() const { return rows_.data(); }

 private:
  std::size_t stride_;
  std::vector<std::byte> bytes_;
  std::vector<const std::byte*> rows_;
};

class DotMeasurement {
 public:
  DotMeasurement(Parallel& parallel, const kernels::WeightKernels& kernels, const kernels::Ops& ops,
                 const std::byte* weights)
      : parallel_(parallel),
        kernels_(kernels),
        x_(ops, kernels.activation),
        weights_(weights),
        y_(parallel.n_workers() * kYStride) {}

  // Bytes of weights a second, with n_x x rows.
  double bytes_per_second(std::size_t n_items, std::size_t n_x, int passes) {
    const std::size_t item = item_bytes();
    const auto product = [&](std::size_t i, std::size_t worker) {
      kernels_.dot_rows(weights_ + i * item, item / kDotRateRows, kDotRateRows, x_.rows(), n_x, kDotRateColumns,
                        y_.data() + worker * kYStride, kDotRateRows);
    };
    return best_rate(parallel_, n_items, std::max<std::size_t>(1, kReadWindow / item), passes, product) *
           static_cast<double>(item);
  }

  std::size_t item_bytes() const { return kDotRateRows * row_bytes(kernels_.type, kDotRateColumns); }

 private:
  static constexpr std::size_t kYStride = kDotRateRows * kDotRateXRows;

  Parallel& parallel_;
  const kernels::WeightKernels& kernels_;
  XRows x_;
  const std::byte* weights_;
  std::vector<float> y_;
};

Status measure(Parallel& parallel, const kernels::Ops& ops, const std::vector<kernels::WeightKernels>& kernels,
               Bytes buffer, bool huge, std::vector<DotRate>& rates) {
  // One item of the widest type fits even the smallest buffer: 1M of F32 in a unit of 4M.
  const auto mapped = Pages::map(static_cast<std::size_t>(buffer.value), huge);
  if (!mapped.ok()) return mapped.error().in("measuring the kernels");
  const Pages& pages = *mapped;
  parallel.run(buffer.value / kReadUnit, [&](std::size_t unit, std::size_t) {
    std::memset(pages.data() + unit * kReadUnit, kWeightByte, kReadUnit);
  });
  if (huge && pages.huge_bytes() < buffer.value) return {};
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    DotMeasurement measurement(parallel, kernels[i], ops, pages.data());
    const std::size_t fit = buffer.value / measurement.item_bytes();
    const double one = measurement.bytes_per_second(fit, 1, kDotPasses) / 1e9;
    (huge ? rates[i].huge_gb_per_second : rates[i].gb_per_second) = one;
    if (huge) continue;
    const double many =
        measurement.bytes_per_second(std::min(fit, kPromptItems * parallel.n_workers()), kDotRateXRows, kPromptPasses);
    const double values_per_byte =
        static_cast<double>(kDotRateColumns) / static_cast<double>(row_bytes(kernels[i].type, kDotRateColumns));
    rates[i].prompt_gops = 2.0 * kDotRateXRows * values_per_byte * many / 1e9;
  }
  return {};
}

}  // namespace

Result<std::vector<DotRate>> measure_dot_rates(Parallel& parallel, const kernels::CpuFeatures& cpu,
                                               std::optional<kernels::Isa> forced, Bytes buffer) {
  TERRACE_ASSIGN_OR_RETURN(const kernels::Ops ops, kernels::select_ops(cpu, forced));
  std::vector<kernels::WeightKernels> kernels;
  std::vector<DotRate> rates;
  for (const kernels::WeightKernels& row : kernels::all_weight_kernels()) {
    if (row.isa != kernels::Isa::kScalar) continue;  // one row of each type
    TERRACE_ASSIGN_OR_RETURN(const kernels::WeightKernels chosen,
                             kernels::select_weight_kernels(row.type, cpu, forced));
    kernels.push_back(chosen);
    rates.push_back({.type = chosen.type, .kernel_name = chosen.kernel_name});
  }
  buffer.value = buffer.value / kReadUnit * kReadUnit;
  for (const bool huge : {false, true}) TERRACE_RETURN_IF_ERROR(measure(parallel, ops, kernels, buffer, huge, rates));
  return rates;
}

}  // namespace terrace::app
