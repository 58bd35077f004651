#include "coordinator/arch/parts/rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace terrace::arch {

void RowFailures::reset(std::size_t n_rows) {
  first_.resize(std::max(first_.size(), n_rows));
  std::fill_n(first_.begin(), n_rows, First{});
}

void RowFailures::fail(std::size_t row, std::uint32_t layer, const char* what, float* values, std::size_t n) {
  std::fill_n(values, n, 0.0f);
  if (!failed(row)) first_[row] = {layer, what, {}};
}

void RowFailures::fail_experts(std::size_t row, std::uint32_t layer, std::span<const std::uint16_t> experts,
                               float* values, std::size_t n) {
  std::fill_n(values, n, 0.0f);
  if (!failed(row)) first_[row] = {layer, "expert outputs", {experts.begin(), experts.end()}};
}

Error RowFailures::error(std::size_t row, const StepRow& at) const {
  const First& first = first_[row];
  const std::string where = first.layer == kNoLayer ? "" : fmt::format(" of layer {}", first.layer);
  const std::string who = first.experts.empty() ? "" : fmt::format(" (of experts {})", fmt::join(first.experts, ", "));
  return Error(ErrorCode::kNotFinite, fmt::format("position {} of stream {}: the {}{}{} are not finite or out of range",
                                                  at.position, at.stream, first.what, where, who));
}

}  // namespace terrace::arch
