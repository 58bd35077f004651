// The products of steps that were taken, alone: the same experts for the same rows, the same dense matrices, over rows
// of random numbers. No attention, norm, router's choice, sampling or scheduling: the time that kernels need at least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "coordinator/app/engine.h"
#include "coordinator/arch/dense_groups.h"
#include "coordinator/arch/parts/matrix.h"
#include "coordinator/arch/trunk.h"
#include "kernels/executor/executor.h"

namespace terrace::app {

// The routing of one step, in the order in which a trace tells it.
struct RecordedStep {
  std::size_t n_rows = 0;
  std::size_t n_logits = 0;            // rows that wanted logits
  std::vector<std::uint16_t> experts;  // [n_layers, n_rows, top_k]
};

// Distinct experts of each layer: [n_layers]
std::vector<std::uint32_t> distinct_experts(const RecordedStep& step, const arch::ModelInfo& info);

// One owner thread, which may run `parallel`.
class KernelReplay {
 public:
  // Borrows what `made` borrows, and both others. Errors as the trunk's.
  static Result<std::unique_ptr<KernelReplay>> make(const Engine::Made& made, const arch::ModelInfo& info,
                                                    Parallel& parallel, const kernels::Ops& ops);
  KernelReplay(const KernelReplay&) = delete;
  KernelReplay& operator=(const KernelReplay&) = delete;

  // Seconds that the products of all these steps take, one step after the other. The steps have equal numbers of rows
  // and of logits. All slabs are read where the file is mapped.
  double seconds(std::span<const RecordedStep> steps);

 private:
  KernelReplay(const Engine::Made& made, const arch::ModelInfo& info, arch::DenseGroups dense, Parallel& parallel,
               const kernels::Ops& ops);

  struct Layer {
    std::vector<kernels::Pair> pairs;  // by expert, then row
  };
  struct Planned {
    std::size_t n_rows = 0, n_logits = 0;
    std::vector<Layer> layers;
  };

  Planned plan(const RecordedStep& step) const;
  void prepare(std::size_t n_rows);
  void run(const Planned& step);
  void multiply(const arch::DenseGroup& group, std::size_t n_rows);
  void run_experts(std::size_t layer, const Planned& step);
  kernels::RowsView expert_rows(ActivationClass activation, std::size_t n_rows);
  // Random rows [n_rows, cols] that are quantised once in each class.
  arch::ActivationRows& rows(std::size_t n_rows, std::size_t cols);

  Engine::Made made_;
  const arch::ModelInfo& info_;
  arch::DenseGroups dense_;
  Parallel& parallel_;
  const kernels::Ops& ops_;
  arch::Multiplier multiplier_;
  kernels::Executor executor_;
  std::vector<float> numbers_;
  std::map<std::pair<std::size_t, std::size_t>, arch::ActivationRows> rows_;
  std::vector<float> y_;
  std::vector<std::int64_t> sums_;
  std::vector<std::uint8_t> failed_;
};

}  // namespace terrace::app
