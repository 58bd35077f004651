// Computes one batch, range by range, and packs each range's reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "kernels/card/expert_card.h"
#include "kernels/executor/executor.h"
#include "tier_node/service/out_frame.h"
#include "tier_node/service/pair_executor.h"
#include "tier_node/service/slice_limit.h"
#include "tier_node/service/work.h"

namespace terrace::node {

// One call at a time. Scratch grows to the largest batch seen and is kept.
class BatchRunner {
 public:
  // References are borrowed. Two runners may share `parallel` as long as one runs only inside the other's hook.
  // executor, card: of its own; the latter of the card on which some slabs lie, null without one.
  BatchRunner(Parallel& parallel, FramePool& frames, std::unique_ptr<PairExecutor> executor,
              std::unique_ptr<kernels::CardExecutor> card);

  // Calls emit(reply) for each range of the batch, in order; a range without pairs has a reply without rows. From the
  // last call on `work` is not touched any more: it may belong to another thread by then.
  // between_slices: as for the Executor, and after slices of SliceLimit's pairs; false ends the batch with kDeadline,
  // ranges already emitted stand.
  Status run(const Work& work, FunctionRef<void(OutFramePtr)> emit, kernels::Executor::BetweenSlices between_slices);

 private:
  // The pairs of one range, rows counted from the range's first.
  struct Range {
    wire::RowRange rows;
    std::span<const kernels::Pair> pairs;
    kernels::BatchView batch;
  };
  Range select_range(const Work& work, std::size_t index);
  // Of a node with a card.
  void split_by_memory(const Work& work, const Range& range);
  Status compute_sums(const Work& work, const Range& range, kernels::Executor::BetweenSlices between_slices,
                      OutFrame& reply);
  Status compute_slots(const Work& work, const Range& range, kernels::Executor::BetweenSlices between_slices,
                       OutFrame& reply);
  // Sums of a range into sums_: the card's pairs on the card while the CPU computes the others. compute_ns: the longer.
  Result<kernels::ExecStats> run_executors(const Work& work, const Range& range,
                                           kernels::Executor::BetweenSlices between_slices);
  Result<kernels::ExecStats> run_in_slices(const Work& work, const kernels::BatchView& batch, kernels::SumsView sums,
                                           kernels::Executor::BetweenSlices between_slices);
  void pack_sums(std::size_t d_model, OutFrame& reply);
  // Of a row of the range; returns the bytes.
  std::size_t pack_row(std::size_t d_model, std::uint32_t row, std::byte* to);

  Parallel& parallel_;
  FramePool& frames_;
  const std::unique_ptr<PairExecutor> executor_;
  SliceLimit slice_;
  const std::unique_ptr<kernels::CardExecutor> card_;
  std::vector<kernels::Pair> pairs_;
  std::vector<kernels::Pair> card_pairs_;  // those of pairs_ whose slabs lie on the card
  std::vector<kernels::Pair> ram_pairs_;   // the others
  std::vector<std::uint32_t> rows_;        // of the range that have a pair, rising, from the range's first
  std::vector<std::uint8_t> has_pair_;     // [rows of the range]
  std::vector<std::uint8_t> failed_;       // [rows of the range]
  std::vector<std::int64_t> sums_;         // [rows of the range, d_model], zeros between ranges
  std::vector<std::byte> packed_;          // [rows with a pair], each at its widest
  std::vector<std::size_t> packed_bytes_;  // [rows with a pair]
};

}  // namespace terrace::node
