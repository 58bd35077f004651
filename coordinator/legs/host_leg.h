// The coordinator's own CPU as a leg. It has the bytes of the experts it owns and of no others: computing an expert
// that belongs to another leg aborts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/legs/polling_parallel.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

// Where an expert's bytes lie in this process (the mapped file).
using SlabLookup = std::function<kernels::SlabView(std::uint32_t layer, std::uint16_t expert)>;

class HostLeg final : public Leg {
 public:
  // Owns the experts that `owners` gives to leg 0. kernels: one per layer; `parallel`, `ops` and `clock` outlive
  // the leg.
  HostLeg(const OwnerTable& owners, const SlabLookup& lookup, std::vector<kernels::ExpertKernels> kernels,
          Parallel& parallel, const kernels::Ops& ops, StepClock& clock = steady_clock());

  // Called by collect() while it computes, so that bytes of other legs move meanwhile: between slices, and in a
  // prompt's batch, which takes milliseconds, every PollingParallel::kEvery of the clock. It calls no run() of
  // `parallel`.
  void set_meanwhile(std::function<void()> hook) { meanwhile_ = std::move(hook); }

  const std::string& name() const override { return name_; }
  LegKind kind() const override { return LegKind::kHost; }
  LegState state() const override { return LegState::kOk; }
  std::uint64_t experts() const override { return experts_; }
  // Remembers the batch; collect() computes it, so that nodes have theirs first.
  Result<Ticket> submit(const LegBatch& batch) override;
  Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  LegCounters counters() const override { return counters_; }

 private:
  struct Open {
    Ticket ticket = 0;  // 0: free
    LegBatch batch;
  };
  void look_meanwhile();

  std::string name_ = "host";
  std::uint32_t n_experts_;
  std::uint64_t experts_;
  std::vector<kernels::SlabView> slabs_;         // [n_layers, n_experts]; null parts where another leg owns
  std::vector<kernels::ExpertKernels> kernels_;  // [n_layers]
  std::function<void()> meanwhile_;
  PollingParallel parallel_;
  kernels::Executor executor_;  // over parallel_
  std::uint64_t not_computed_ns_ = 0;
  std::vector<Open> open_;
  Ticket next_ticket_ = 1;
  std::vector<std::uint8_t> row_seen_;  // scratch of submit()
  LegCounters counters_;
};

}  // namespace terrace::legs
