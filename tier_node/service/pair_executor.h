// What computes a runner's pairs from slabs in memory: kernels::Executor, unless whoever starts the data server brings
// something else. A bench brings one that remembers, so that it times all but the computing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::node {

// One call at a time.
class PairExecutor {
 public:
  virtual ~PairExecutor() = default;
  // Both as kernels::Executor's, with the same results by ==.
  virtual Result<kernels::ExecStats> run(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                                         const kernels::BatchView& batch, kernels::SumsView sums,
                                         std::span<std::uint8_t> failed,
                                         kernels::Executor::BetweenSlices between_slices) = 0;
  virtual Result<kernels::ExecStats> run_slots(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                                               const kernels::BatchView& batch, std::span<float> out,
                                               std::span<std::uint8_t> failed,
                                               kernels::Executor::BetweenSlices between_slices) = 0;
};

// Called once for each runner; both arguments are borrowed and outlive what it makes.
using MakePairExecutor = std::function<std::unique_ptr<PairExecutor>(Parallel& parallel, const kernels::Ops& ops)>;
std::unique_ptr<PairExecutor> make_pair_executor(Parallel& parallel, const kernels::Ops& ops);

}  // namespace terrace::node
