// A leg computes pairs (row, expert): the coordinator's host CPU, a tier node, a card. All have this one
// asynchronous interface; the dispatcher knows legs, the trunk knows neither legs nor transports.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

enum class LegKind : std::uint8_t { kHost, kCard, kNode };
enum class LegState : std::uint8_t { kOk, kLost, kWrong };
const char* name(LegKind kind);    // "host", "card", "node"
const char* name(LegState state);  // "ok", "lost", "wrong"

// Rows [first, first + count) of a batch; a leg answers range by range.
struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
enum class Priority : std::uint8_t { kDecode, kPrompt };
// What a leg gives for a batch (docs/numerics.md 5): a sum a row, or, for audits, each pair's own output.
enum class ReplyForm : std::uint8_t { kSum, kSlots };

// What a leg is asked for: some pairs of one layer. Everything is borrowed from submit() until collect() returns.
struct LegBatch {
  std::uint64_t epoch = 0;
  std::uint32_t layer = 0;
  kernels::RowsView gate_rows;  // [n_rows, d_model] in the class of gate
  kernels::RowsView up_rows;    // the same memory when the classes are equal
  std::uint32_t n_rows = 0;
  std::span<const kernels::Pair> pairs;  // of experts this leg owns; sorted by expert, then row; not empty
  std::span<const RowRange> ranges;      // rising, disjoint; together they hold every row that has a pair
  Priority priority = Priority::kDecode;
  ReplyForm form = ReplyForm::kSum;
};

// Counted since the leg was made; read between steps.
struct LegCounters {
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;  // rows that had a pair here, per batch
  std::uint64_t pairs = 0;
  std::uint64_t bytes_sent = 0;  // data frames, headers included, without weights
  std::uint64_t bytes_received = 0;
  std::uint64_t weight_bytes_sent = 0;  // slabs, to a node or to a card
  std::uint64_t wait_us = 0;            // the step's wait for this leg's replies
  std::uint64_t compute_us = 0;         // the leg's own kernels
  std::uint64_t audited_pairs = 0;      // that were computed here too and compared
  std::uint64_t round_trip_us = 0;      // of a node: from submit() until the batch's last reply was seen
};

using Ticket = std::uint64_t;

// One owner thread (the step's). Tickets are collected in any order; several may be open.
class Leg {
 public:
  virtual ~Leg() = default;

  virtual const std::string& name() const = 0;  // "host", "card0", or the string given to --node
  virtual LegKind kind() const = 0;
  virtual LegState state() const = 0;
  virtual std::uint64_t experts() const = 0;  // slabs it owns in the current epoch, over all layers

  // Takes the batch and returns at once. An error means the leg did not take it. kBusy: too much is open, collect
  // first. kRefused: the batch is too large for this leg. Otherwise the leg is lost; the error says why.
  virtual Result<Ticket> submit(const LegBatch& batch) = 0;
  // Waits for the batch and adds its sums into `sums` (integers: legs add in any order). failed[row] = 1 for a row
  // whose output is not finite. On error nothing was added that is not exact, but the batch is incomplete.
  // Errors name the leg; where state() is still kOk they are of this batch alone (a node's kStaleEpoch, kRefused ...).
  virtual Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) = 0;
  // The same of a batch of form kSlots: slots [n_pairs, d_model] is overwritten with each pair's output, unweighted, in
  // the batch's order; undefined for pairs of failed rows. kUnsupported: this leg is not audited.
  virtual Status collect_slots(Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed);
  // It was found to compute wrong, as `why` says: what it gave is not certain, and it is never used again. Its tickets
  // are collected all the same.
  virtual void put_out(const Error&) {}
  // Moves what can be moved without blocking (bytes of a node's batch); called while other legs compute.
  virtual void progress() {}

  virtual LegCounters counters() const = 0;
};

}  // namespace terrace::legs
