#include "coordinator/legs/dispatcher.h"

#include <algorithm>
#include <utility>

namespace terrace::legs {

Dispatcher::Dispatcher(const OwnerTable& owners, std::vector<Leg*> legs, std::vector<kernels::ExpertKernels> kernels,
                       std::uint32_t top_k, Parallel& parallel, const kernels::Ops& ops)
    : owners_(owners),
      legs_(std::move(legs)),
      kernels_(std::move(kernels)),
      top_k_(top_k),
      parallel_(parallel),
      ops_(ops),
      use_(owners_.n_layers(), owners_.n_experts()),
      work_(legs_.size()) {
  TERRACE_CHECK(legs_.size() == owners_.n_legs(), "the owner table names other legs");
  TERRACE_CHECK(kernels_.size() == owners_.n_layers(), "the owner table has other layers");
}

// Each row once per class that this layer's gate and up need (docs/numerics.md 2).
void Dispatcher::quantise(const RoutedRows& routed) {
  const kernels::ExpertKernels& layer = kernels_[routed.layer];
  const std::size_t d_model = layer.shape.d_model;
  const ActivationClass classes[] = {layer.gate_class(), layer.up_class()};
  for (std::size_t i = 0; i < 2; ++i) {
    if (classes[i] == ActivationClass::kF32 || (i == 1 && classes[1] == classes[0])) continue;
    std::vector<std::byte>& rows = quantised_[static_cast<std::size_t>(classes[i])];
    const std::size_t bytes = row_bytes(classes[i], d_model);
    if (rows.size() < bytes * routed.n_rows) rows.resize(bytes * routed.n_rows);
    const auto quantise_row = [&](std::size_t row, std::size_t) {
      ops_.quantize_row(classes[i], routed.rows + row * d_model, d_model, rows.data() + row * bytes);
    };
    parallel_.run(routed.n_rows, quantise_row);
  }
}

kernels::RowsView Dispatcher::rows_in(ActivationClass activation, const RoutedRows& routed) const {
  kernels::RowsView view;
  view.activation = activation;
  view.stride = row_bytes(activation, kernels_[routed.layer].shape.d_model);
  view.data = activation == ActivationClass::kF32 ? reinterpret_cast<const std::byte*>(routed.rows)
                                                  : quantised_[static_cast<std::size_t>(activation)].data();
  return view;
}

// A counting sort by expert; rows stay in order. Then each leg's pairs, still by expert.
void Dispatcher::sort_pairs(const RoutedRows& routed) {
  const std::size_t n_pairs = std::size_t{routed.n_rows} * top_k_;
  expert_start_.assign(owners_.n_experts() + 1, 0);
  for (std::size_t i = 0; i < n_pairs; ++i) ++expert_start_[routed.experts[i] + 1];
  for (std::uint32_t e = 0; e < owners_.n_experts(); ++e)
    if (expert_start_[e + 1] != 0) use_.add(routed.layer, e, expert_start_[e + 1]);
  for (std::size_t e = 1; e < expert_start_.size(); ++e) expert_start_[e] += expert_start_[e - 1];
  sorted_.resize(n_pairs);
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const std::uint16_t expert = routed.experts[i];
    sorted_[expert_start_[expert]++] = {static_cast<std::uint16_t>(i / top_k_), expert, routed.weights[i]};
  }
  for (LegWork& work : work_) work.pairs.clear();
  const auto owners = owners_.owners(routed.layer);
  for (const kernels::Pair& pair : sorted_) work_[owners[pair.expert]].pairs.push_back(pair);
}

void Dispatcher::cut_ranges(const RoutedRows& routed) {
  ranges_.clear();
  const std::uint32_t rows = routed.priority == Priority::kDecode ? routed.n_rows : kPromptRangeRows;
  for (std::uint32_t first = 0; first < routed.n_rows; first += rows)
    ranges_.push_back({first, std::min(rows, routed.n_rows - first)});
}

void Dispatcher::begin_step() {
  ++step_;
  if (auditor_ != nullptr) auditor_->begin_step(step_);
}

// All of a leg's batch but its pairs.
LegBatch Dispatcher::batch_of(const RoutedRows& routed) const {
  LegBatch batch;
  batch.epoch = owners_.epoch();
  batch.layer = routed.layer;
  batch.gate_rows = rows_in(kernels_[routed.layer].gate_class(), routed);
  batch.up_rows = rows_in(kernels_[routed.layer].up_class(), routed);
  batch.n_rows = routed.n_rows;
  batch.ranges = ranges_;
  batch.priority = routed.priority;
  return batch;
}

Status Dispatcher::submit_to(std::size_t leg, const RoutedRows& routed) {
  LegWork& work = work_[leg];
  if (work.pairs.empty()) return {};
  LegBatch batch = batch_of(routed);
  if (auditor_ != nullptr && legs_[leg]->kind() == LegKind::kNode) {
    auditor_->take(*legs_[leg], batch, work.pairs);
    if (work.pairs.empty()) return {};
  }
  batch.pairs = work.pairs;
  TERRACE_ASSIGN_OR_RETURN(work.ticket, legs_[leg]->submit(batch));
  return {};
}

Status Dispatcher::submit(const RoutedRows& routed) {
  for (const LegWork& work : work_) TERRACE_CHECK(!work.ticket, "submit() before collect()");
  n_rows_ = routed.n_rows;
  d_model_ = kernels_[routed.layer].shape.d_model;
  quantise(routed);
  sort_pairs(routed);
  cut_ranges(routed);
  Status status;
  for (std::size_t i = 1; i <= legs_.size(); ++i) {  // nodes first, then the host (leg 0)
    status = submit_to(i % legs_.size(), routed);
    if (!status.ok()) break;
  }
  if (status.ok() && auditor_ != nullptr) auditor_->submit();
  if (status.ok()) return {};
  const Status discarded = discard();
  const bool uncertain = !discarded.ok() && discarded.error().code() == ErrorCode::kUncertain;
  return uncertain ? discarded : status;
}

// What was already handed out is collected and thrown away, so that no leg keeps borrowed rows.
Status Dispatcher::discard() {
  std::vector<std::int64_t> sums(n_rows_ * d_model_);
  std::vector<std::uint8_t> failed(n_rows_);
  return collect({.data = sums.data(), .d_model = d_model_}, failed);
}

// Every open ticket is collected even after an error, so that no leg keeps what was borrowed.
Status Dispatcher::collect(kernels::SumsView sums, std::span<std::uint8_t> failed) {
  TERRACE_CHECK(sums.d_model == d_model_ && failed.size() == n_rows_, "sums of another shape than the rows");
  std::fill_n(sums.data, n_rows_ * sums.d_model, 0);
  Status status, audited;
  for (std::size_t leg = 0; leg < legs_.size(); ++leg) {
    // Own work first, while nodes compute theirs.
    if (leg == 1 && auditor_ != nullptr) audited = auditor_->collect(sums, failed);
    if (!work_[leg].ticket) continue;
    const Status collected = legs_[leg]->collect(*work_[leg].ticket, sums, failed);
    work_[leg].ticket.reset();
    if (status.ok()) status = collected;
  }
  // The verdict is the error to tell: who hears it computes again more than the step.
  return audited.ok() ? status : audited;
}

}  // namespace terrace::legs
