// Cuts a layer's rows into one batch per leg by the epoch's owner table, hands them out (nodes first), and adds the
// legs' integer sums (docs/architecture.md, one layer of one step). Placement cannot change a bit: sums are integers,
// and a pair is computed once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/parallel.h"
#include "coordinator/legs/auditor.h"
#include "coordinator/legs/expert_use.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/legs/routed_experts.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

// Rows of one row range of a prompt batch: the unit in which legs answer. Decode batches are one range.
inline constexpr std::uint32_t kPromptRangeRows = 256;

class Dispatcher final : public RoutedExperts {
 public:
  // legs[i] is leg i of `owners` (0 the host); all outlive the dispatcher. kernels: one per layer, for the rows'
  // classes. top_k experts a row.
  Dispatcher(const OwnerTable& owners, std::vector<Leg*> legs, std::vector<kernels::ExpertKernels> kernels,
             std::uint32_t top_k, Parallel& parallel, const kernels::Ops& ops);

  // Null: nothing is audited. Before the first step; outlives the dispatcher.
  void set_auditor(Auditor* auditor) { auditor_ = auditor; }

  void begin_step() override;
  std::uint64_t step() const override { return step_; }
  std::uint64_t uncertain_since() const override { return auditor_ == nullptr ? 0 : auditor_->uncertain_since(); }
  Status submit(const RoutedRows& routed) override;
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override;

  // Any thread.
  const OwnerTable& owners() const { return owners_; }
  const ExpertUse& use() const { return use_; }

 private:
  struct LegWork {
    std::vector<kernels::Pair> pairs;
    std::optional<Ticket> ticket;
  };

  void quantise(const RoutedRows& routed);
  kernels::RowsView rows_in(ActivationClass activation, const RoutedRows& routed) const;
  void sort_pairs(const RoutedRows& routed);
  void cut_ranges(const RoutedRows& routed);
  LegBatch batch_of(const RoutedRows& routed) const;
  Status submit_to(std::size_t leg, const RoutedRows& routed);
  Status discard();

  OwnerTable owners_;
  std::vector<Leg*> legs_;
  std::vector<kernels::ExpertKernels> kernels_;  // [n_layers]
  std::uint32_t top_k_;
  Parallel& parallel_;
  const kernels::Ops& ops_;
  Auditor* auditor_ = nullptr;
  std::uint64_t step_ = 0;

  ExpertUse use_;
  std::vector<std::byte> quantised_[kActivationClasses];  // the step's rows in each class that is needed
  std::vector<std::uint32_t> expert_start_;               // [n_experts + 1], scratch of sort_pairs()
  std::vector<kernels::Pair> sorted_;                     // all pairs by expert, then row
  std::vector<LegWork> work_;                             // [legs]
  std::vector<RowRange> ranges_;
  std::uint32_t n_rows_ = 0;  // of the rows last submitted
  std::size_t d_model_ = 0;
};

}  // namespace terrace::legs
