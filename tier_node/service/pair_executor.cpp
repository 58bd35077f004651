#include "tier_node/service/pair_executor.h"

namespace terrace::node {
namespace {

class OnTheCpu final : public PairExecutor {
 public:
  OnTheCpu(Parallel& parallel, const kernels::Ops& ops) : executor_(parallel, ops) {}

  Result<kernels::ExecStats> run(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                                 const kernels::BatchView& batch, kernels::SumsView sums,
                                 std::span<std::uint8_t> failed,
                                 kernels::Executor::BetweenSlices between_slices) override {
    return executor_.run(kernels, slab_of, batch, sums, failed, between_slices);
  }
  Result<kernels::ExecStats> run_slots(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                                       const kernels::BatchView& batch, std::span<float> out,
                                       std::span<std::uint8_t> failed,
                                       kernels::Executor::BetweenSlices between_slices) override {
    return executor_.run_slots(kernels, slab_of, batch, out, failed, between_slices);
  }

 private:
  kernels::Executor executor_;
};

}  // namespace

std::unique_ptr<PairExecutor> make_pair_executor(Parallel& parallel, const kernels::Ops& ops) {
  return std::make_unique<OnTheCpu>(parallel, ops);
}

}  // namespace terrace::node
