// A card that computes experts, and a trunk's dense products, from weights in its memory: what legs, nodes and trunks
// know of cards. Nothing here needs CUDA or a
// card: kernels/cuda/experts opens a real one, tests bring one of their own.
//
// Addresses in card memory travel in the types of host memory (SlabView, spans); only the card they belong to may read
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "kernels/card/card_trunk.h"
#include "kernels/executor/executor.h"

namespace terrace::kernels {

struct CardFacts {
  int index = 0;                   // as the driver counts: --gpu
  std::string name;                // "NVIDIA H200"
  std::uint64_t budget_bytes = 0;  // taken from the card when it was opened
  std::uint64_t total_bytes = 0;   // that it has
  bool integrated = false;         // its memory is the host's
  bool ends_long_kernels = false;  // its driver does, after some seconds: it drives a display
};

// Computes batches over slabs in the card's memory: kernels/executor's Executor, asynchronously.
// Threads  One at a time; submit() and collect() alternate. Several executors of a card work side by side.
// Result   Equal to Executor's by == (docs/numerics.md 9, P1 and P2).
class CardExecutor {
 public:
  virtual ~CardExecutor() = default;

  // Queues the batch's pairs and returns while they are computed. slab_of is asked on the calling thread before it
  // returns: slabs in this card's memory that stay until the batch is collected; what `batch` points to is borrowed
  // until then. kUnsupported: as ExpertCard::check(). kInternal: the card failed, now and for good; names it.
  virtual Status submit(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch, int shift) = 0;
  // Waits, and adds the batch's sums as Executor::run() does, with its rules for `failed` and the hook. compute_ns is
  // the card's time.
  virtual Result<ExecStats> collect(SumsView sums, std::span<std::uint8_t> failed,
                                    Executor::BetweenSlices between_slices) = 0;
  // As Executor::run_slots(); waits.
  virtual Result<ExecStats> run_slots(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch,
                                      std::span<float> out, std::span<std::uint8_t> failed,
                                      Executor::BetweenSlices between_slices) = 0;
};

// A dense matrix in slab memory, rows without gaps, and where its products go.
struct CardProduct {
  TensorType type = TensorType::kF32;
  const std::byte* w = nullptr;  // on the card: [rows, cols]
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  float* y = nullptr;  // host [n_rows, rows]: overwritten
};

// Products of dense matrices with rows, equal by == to the CPU's (docs/numerics.md 3 and 8).
// Threads  One at a time.
class CardMultiplier {
 public:
  static constexpr std::size_t kMaxProducts = 4;
  virtual ~CardMultiplier() = default;
  // y[j, r] = w[r] . x[j] of each product; x is host [n_rows, cols], finite, quantised on the card. At most
  // kMaxProducts, all of one width. Waits; `parallel` copies between pinned memory and x and y. kInternal: the card
  // failed, now and for good; names it.
  virtual Status run(std::span<const CardProduct> products, const float* x, std::size_t n_rows, Parallel& parallel) = 0;
};

// Called with bytes that lie on the card and bytes in all, by whoever loads.
using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// Copies from the host into slab memory by way of pinned memory, which is filled while what was filled before is on its
// way: bytes of a file need no other memory.
// Threads  One at a time; several writers of a card work side by side.
class CardWriter {
 public:
  // What is queued goes in pieces of this size and a smaller last one. A copy costs some microseconds beside its bytes,
  // so whole pieces are the fastest: on an H200 those of 2 MB reach 91 % of one large copy, those of 256 KB 52 %.
  static constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
  // The pinned memory of a writer: one piece is filled while the other is copied. More gain nothing where several
  // writers work side by side, and pinning takes its time.
  static constexpr std::size_t kPinnedBytes = 2 * kPieceBytes;

  // Puts what begins `at` bytes behind the begin of what is written into `piece`.
  using Fill = FunctionRef<Status(std::uint64_t at, std::span<std::byte> piece)>;

  virtual ~CardWriter() = default;
  // Returns when the last piece is filled; it may be on its way. Errors: fill's; kInternal: the card failed; names it.
  virtual Status queue(std::byte* card, std::uint64_t bytes, Fill fill) = 0;
  // Waits until everything queued lies in card memory. Errors as above.
  virtual Status finish() = 0;

  Status queue(std::byte* card, std::span<const std::byte> data);
  // Queues, and waits for it.
  Status write(std::byte* card, std::span<const std::byte> data);
};

// The part of a budget that an executor or a multiplier works in: an eighth, so that small budgets hold experts too.
inline constexpr std::uint64_t kMostCardWorkspace = std::uint64_t{128} << 20;
constexpr std::uint64_t card_workspace_bytes(std::uint64_t budget_bytes) {
  return budget_bytes / 8 < kMostCardWorkspace ? budget_bytes / 8 : kMostCardWorkspace;
}
// Pinned host memory of one of them.
constexpr std::uint64_t card_staging_bytes(std::uint64_t budget_bytes) {
  return card_workspace_bytes(budget_bytes) / 2;
}

// A node's two executors (decode batches are computed between the slices of a prompt's), or a coordinator's executor
// and multiplier.
inline constexpr int kCardWorkspaces = 2;

// Threads  Any. Executors, multipliers (at most kCardWorkspaces of both at a time) and writers must not outlive it.
class ExpertCard {
 public:
  virtual ~ExpertCard() = default;
  virtual const CardFacts& facts() const = 0;
  // What is left of the budget for slabs, 256-byte aligned. Parts of a slab begin at multiples of 16 bytes, and may be
  // read up to the next one.
  virtual std::span<std::byte> slab_memory() const = 0;
  // Bytes a second that the card reads of slab memory at best, measured now: nothing may compute there. kUnsupported:
  // this card has no such measure.
  virtual Result<double> read_rate() const;
  // Whether experts of this shape can be computed here. kUnsupported: names the type that has no kernel, or rows too
  // long for the card; kOutOfMemory: a single pair does not fit into an executor's workspace.
  virtual Status check(const ExpertShape& shape) const = 0;
  // The same of a dense matrix: w, y and the rest of `product` are not looked at.
  virtual Status check(const CardProduct& product) const = 0;
  virtual Result<std::unique_ptr<CardExecutor>> make_executor() = 0;
  virtual Result<std::unique_ptr<CardMultiplier>> make_multiplier() = 0;
  virtual Result<std::unique_ptr<CardWriter>> make_writer() = 0;
  // What a trunk takes of slab memory: weights, cache, the values of a step. kUnsupported: this card computes no such
  // trunk; the text names what it has no kernel for.
  virtual Result<std::uint64_t> trunk_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) const;
  // Pinned host memory of such a trunk.
  virtual std::uint64_t trunk_pinned_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) const;
  // The trunk in trunk_bytes() of slab memory, its weights copied there; on_progress, where there is one, is told after
  // each matrix. kInternal: the card failed; names it.
  virtual Result<std::unique_ptr<CardTrunk>> make_trunk(CardTrunkModel model, const CardTrunkLimits& limits,
                                                        std::span<std::byte> memory, const LoadProgress& on_progress);
};

}  // namespace terrace::kernels
