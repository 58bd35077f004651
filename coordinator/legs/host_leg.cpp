#include "coordinator/legs/host_leg.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/time.h"

namespace terrace::legs {
namespace {

std::vector<kernels::SlabView> owned_slabs(const OwnerTable& owners, const SlabLookup& lookup) {
  std::vector<kernels::SlabView> slabs(std::size_t{owners.n_layers()} * owners.n_experts());
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer)
    for (const std::uint16_t expert : owners.experts(0, layer))
      slabs[std::size_t{layer} * owners.n_experts() + expert] = lookup(layer, expert);
  return slabs;
}

}  // namespace

HostLeg::HostLeg(const OwnerTable& owners, const SlabLookup& lookup, std::vector<kernels::ExpertKernels> kernels,
                 Parallel& parallel, const kernels::Ops& ops, StepClock& clock)
    : n_experts_(owners.n_experts()),
      experts_(owners.n_slabs(0)),
      slabs_(owned_slabs(owners, lookup)),
      kernels_(std::move(kernels)),
      parallel_(
          parallel, [this] { look_meanwhile(); }, clock),
      executor_(parallel_, ops) {}

// Other threads compute on: of the time that kernels take it is worth one thread's part.
void HostLeg::look_meanwhile() {
  if (!meanwhile_) return;
  const auto start = std::chrono::steady_clock::now();
  meanwhile_();
  const std::chrono::nanoseconds looked = std::chrono::steady_clock::now() - start;
  not_computed_ns_ += static_cast<std::uint64_t>(looked.count()) / parallel_.n_workers();
}

Result<Ticket> HostLeg::submit(const LegBatch& batch) {
  const auto free = std::find_if(open_.begin(), open_.end(), [](const Open& o) { return o.ticket == 0; });
  Open& open = free != open_.end() ? *free : open_.emplace_back();
  open.ticket = next_ticket_++;
  open.batch = batch;
  row_seen_.assign(batch.n_rows, 0);
  for (const kernels::Pair& pair : batch.pairs) row_seen_[pair.row] = 1;
  counters_.batches += 1;
  counters_.rows += static_cast<std::uint64_t>(std::count(row_seen_.begin(), row_seen_.end(), 1));
  counters_.pairs += batch.pairs.size();
  return open.ticket;
}

Status HostLeg::collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& o) { return o.ticket == ticket; });
  TERRACE_CHECK(open != open_.end(), "collect() of a ticket that is not open");
  const LegBatch batch = std::move(open->batch);
  open->ticket = 0;
  kernels::BatchView view;
  view.gate_rows = batch.gate_rows;
  view.up_rows = batch.up_rows;
  view.n_rows = batch.n_rows;
  view.pairs = batch.pairs;
  const std::size_t first_slab = std::size_t{batch.layer} * n_experts_;
  const auto slab_of = [&](std::uint16_t expert) { return slabs_[first_slab + expert]; };
  const auto between = [&] {
    if (meanwhile_) meanwhile_();
    return true;
  };
  const auto start = std::chrono::steady_clock::now();
  not_computed_ns_ = 0;
  if (batch.priority == Priority::kPrompt) parallel_.start_polling();
  auto stats = executor_.run(kernels_[batch.layer], slab_of, view, sums, failed, between);
  parallel_.stop_polling();
  counters_.wait_us += us_of(std::chrono::steady_clock::now() - start);
  if (!stats.ok()) return stats.error().in(name_);
  counters_.compute_us += (stats->compute_ns - std::min(stats->compute_ns, not_computed_ns_)) / 1000;
  return {};
}

}  // namespace terrace::legs
