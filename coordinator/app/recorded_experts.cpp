#include "coordinator/app/recorded_experts.h"

#include <algorithm>

#include "common/base/check.h"

namespace terrace::app {

void RecordedExperts::set(Mode mode) {
  mode_ = mode;
  collected_ = 0;
  if (mode == Mode::kRecord) recorded_.clear();
}

std::span<const kernels::SlabView> RecordedExperts::slabs_on_card() {
  if (mode_ == Mode::kGiveNothing) return {};
  return experts_.slabs_on_card();
}

std::span<const kernels::SlabView> RecordedExperts::part_on_card() {
  if (mode_ == Mode::kGiveNothing) return {};
  return experts_.part_on_card();
}

void RecordedExperts::count_on_card(const std::uint16_t* experts, std::uint32_t n_rows, std::uint64_t ns) {
  if (hands_out()) experts_.count_on_card(experts, n_rows, ns);
}

Status RecordedExperts::submit(const legs::RoutedRows& routed) {
  if (mode_ == Mode::kRecord) {
    const std::size_t n = routed.n_rows, n_choices = n * top_k_;
    recorded_.push_back({.layer = routed.layer,
                         .n_rows = routed.n_rows,
                         .priority = routed.priority,
                         .rows = {routed.rows, routed.rows + n * d_model_},
                         .experts = {routed.experts, routed.experts + n_choices},
                         .weights = {routed.weights, routed.weights + n_choices},
                         .sums = {}});
  }
  return hands_out() ? experts_.submit(routed) : Status();
}

Status RecordedExperts::collect(kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const std::size_t n_values = failed.size() * d_model_;
  if (hands_out()) {
    TERRACE_RETURN_IF_ERROR(experts_.collect(sums, failed));
    if (mode_ == Mode::kRecord) recorded_[collected_++].sums.assign(sums.data, sums.data + n_values);
    return {};
  }
  if (mode_ == Mode::kGiveNothing) {
    std::fill_n(sums.data, n_values, 0);
    return {};
  }
  TERRACE_CHECK(collected_ < recorded_.size() && recorded_[collected_].sums.size() == n_values,
                "steps that were not recorded");
  std::ranges::copy(recorded_[collected_++].sums, sums.data);
  return {};
}

Status RecordedExperts::abandon() { return hands_out() ? experts_.abandon() : Status(); }

void RecordedExperts::progress() {
  if (hands_out()) experts_.progress();
}

}  // namespace terrace::app
