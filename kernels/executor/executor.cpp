#include "kernels/executor/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "kernels/executor/slice.h"

namespace terrace::kernels {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t nanoseconds_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

// Cuts `pairs` into slices of at most `limit`; compute(first, pairs of the slice) does one.
Result<ExecStats> run_in_slices(std::span<const Pair> pairs, std::size_t limit, Executor::BetweenSlices between_slices,
                                FunctionRef<void(std::size_t first, std::span<const Pair>)> compute) {
  ExecStats stats;
  while (stats.pairs < pairs.size()) {
    if (stats.pairs != 0 && !between_slices())
      return Error(ErrorCode::kDeadline,
                   fmt::format("experts were stopped after {} of {} pairs", stats.pairs, pairs.size()));
    const Clock::time_point start = Clock::now();
    const auto slice = pairs.subspan(stats.pairs, std::min<std::size_t>(limit, pairs.size() - stats.pairs));
    compute(stats.pairs, slice);
    stats.compute_ns += nanoseconds_since(start);
    stats.pairs += slice.size();
  }
  return stats;
}

void check_batch(const ExpertKernels& kernels, const BatchView& batch, std::span<std::uint8_t> failed) {
  TERRACE_CHECK(batch.gate_rows.activation == kernels.gate_class(), "rows are not in gate's activation class");
  TERRACE_CHECK(batch.up_rows.activation == kernels.up_class(), "rows are not in up's activation class");
  TERRACE_CHECK(failed.size() == batch.n_rows, "one failed flag for each row");
}

}  // namespace

Executor::Executor(Parallel& parallel, const Ops& ops, std::size_t max_pairs_per_slice)
    : parallel_(parallel), slice_(std::make_unique<Slice>(parallel, ops)), max_pairs_per_slice_(max_pairs_per_slice) {
  TERRACE_CHECK(max_pairs_per_slice > 0, "a slice has at least one pair");
}

std::uint64_t Executor::scratch_bytes(const ExpertKernels& kernels, std::size_t n_workers) {
  const std::uint64_t pair = Slice::bytes_a_pair(kernels, n_workers);
  return std::clamp(kMaxScratchBytes / pair, std::uint64_t{1}, std::uint64_t{kMaxPairsPerSlice}) * pair;
}

std::size_t Executor::pairs_per_slice(const ExpertKernels& kernels) const {
  const std::uint64_t fit = kMaxScratchBytes / Slice::bytes_a_pair(kernels, parallel_.n_workers());
  return std::clamp<std::uint64_t>(fit, 1, max_pairs_per_slice_);
}

Executor::~Executor() = default;

Result<ExecStats> Executor::run(const ExpertKernels& kernels, SlabOf slab_of, const BatchView& batch, SumsView sums,
                                std::span<std::uint8_t> failed, BetweenSlices between_slices) {
  check_batch(kernels, batch, failed);
  TERRACE_CHECK(sums.d_model == kernels.shape.d_model, "sums of another width than the experts' outputs");
  return run_in_slices(batch.pairs, pairs_per_slice(kernels), between_slices,
                       [&](std::size_t, std::span<const Pair> pairs) {
                         slice_->compute(kernels, slab_of, batch, pairs, {.sums = sums}, failed);
                       });
}

Result<ExecStats> Executor::run_slots(const ExpertKernels& kernels, SlabOf slab_of, const BatchView& batch,
                                      std::span<float> out, std::span<std::uint8_t> failed,
                                      BetweenSlices between_slices) {
  check_batch(kernels, batch, failed);
  const std::size_t d_model = kernels.shape.d_model;
  TERRACE_CHECK(out.size() == batch.pairs.size() * d_model, "one slot of d_model values for each pair");
  return run_in_slices(batch.pairs, pairs_per_slice(kernels), between_slices,
                       [&](std::size_t first, std::span<const Pair> pairs) {
                         const ExpertOutputs outputs{.sums = {}, .slots = out.data() + first * d_model};
                         slice_->compute(kernels, slab_of, batch, pairs, outputs, failed);
                       });
}

}  // namespace terrace::kernels
