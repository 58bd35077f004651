// A leg computes pairs (row, expert): the coordinator's host CPU, a tier node, a card. All have this one
// asynchronous interface; the dispatcher knows legs, the trunk knows neither legs nor transports.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/legs/step_clock.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

enum class LegKind : std::uint8_t { kHost, kCard, kNode };
// What is known of a leg. A suspect one answers again or is lost; a lost one may come back as a new session; a wrong
// one stays out until a person readmits it.
enum class LegState : std::uint8_t {
  kOk,
  kSuspect,  // a batch is past its soft limit, and nothing has come since
  kLost,     // cut off, or silent beyond the hard limit
  kWrong,    // it has answered what was not asked, or other bits than ours
};
const char* name(LegKind kind);    // "host", "card", "node"
const char* name(LegState state);  // "ok", "suspect", "lost", "wrong"
inline bool is_out(LegState state) { return state == LegState::kLost || state == LegState::kWrong; }

// Rows [first, first + count) of a batch; a leg answers range by range.
struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
// Rows whose sums are added or cleared by all threads: fewer are done before another one is awake.
inline constexpr std::uint32_t kRowsToShare = 32;

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
  ReplyForm form = ReplyForm::kSum;  // kSlots: of a leg by range, and one range
  // Owns the rows' memory where they may be needed longer: a leg that was given up may still have to send them, and
  // then keeps this. Null: the rows live until collect() or abandon() returns, and sends that are not through by then
  // end the connection.
  std::shared_ptr<const void> rows_owner{};
};

// How far one of a batch's ranges is, in the order of LegBatch::ranges.
enum class RangeState : std::uint8_t {
  kOpen,    // its answer has not come
  kReady,   // take() adds it
  kClosed,  // taken, or the leg has no pair of it
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
  std::uint64_t round_trip_us = 0;      // of a node: from submit() until the batch's last reply was seen
  // What went wrong with the leg, and who stood in for it.
  std::uint64_t hedges = 0;          // batches that the backstop began to compute beside the leg
  std::uint64_t false_hedges = 0;    // of them, those in which the leg still answered a range first
  std::uint64_t hedged_pairs = 0;    // of `pairs`, those whose sum is the backstop's
  std::uint64_t backstop_bytes = 0;  // read from our own file for them
  std::uint64_t backstop_us = 0;     // reading and computing them, as far as a step waited for it
  std::uint64_t skipped = 0;         // batches that were not sent, for the leg was suspect or out
  std::uint64_t late = 0;            // batches past their soft limit
  std::uint64_t refused = 0;         // batches that the leg answered by an error
  std::uint64_t audited_pairs = 0;   // of `pairs`, those computed here too and compared: the sum has ours
  std::uint64_t losses = 0;          // sessions that ended as lost
  std::uint64_t wrongs = 0;          // or as wrong
  std::uint64_t rejoins = 0;         // sessions after the first
  LegCounters& operator+=(const LegCounters& other);
  LegCounters operator-(const LegCounters& before) const;  // what was counted since
};

// For what counts, adds or tells all of them.
using LegCounter = std::uint64_t LegCounters::*;
inline constexpr std::size_t kLegCounters = 21;
std::span<const LegCounter, kLegCounters> all_counters();

using Ticket = std::uint64_t;

// One owner thread (the step's, from the moment the leg is in a published epoch). Tickets end in any order; several may
// be open.
class Leg {
 public:
  virtual ~Leg() = default;

  virtual const std::string& name() const = 0;  // "host", "card0", or the string given to --node
  virtual LegKind kind() const = 0;
  virtual LegState state() const = 0;
  virtual std::uint64_t experts() const = 0;  // slabs it owns in the current epoch, over all layers

  // Takes the batch and returns at once. An error means the leg did not take it. kBusy: too much is open, collect
  // first. kRefused: the batch is too large for this leg. Otherwise the leg is out; the error says why.
  virtual Result<Ticket> submit(const LegBatch& batch) = 0;
  // Waits for the batch and adds its sums into `sums` (integers: legs add in any order). failed[row] = 1 for a row
  // whose output is not finite. On error nothing was added that is not exact, but the batch is incomplete.
  // Errors name the leg; where state() is still kOk they are of this batch alone (a node's kStaleEpoch, kRefused ...).
  virtual Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) = 0;
  // Moves what can be moved without blocking (bytes of a node's batch); called while other legs compute.
  virtual void progress() {}

  virtual LegCounters counters() const = 0;

  // ---- cards ------------------------------------------------------------------------------------------------------
  // [n_layers, n_experts] where its experts lie in the memory of the trunk's card, null parts where another leg owns;
  // empty: elsewhere.
  virtual std::span<const kernels::SlabView> slabs_on_card() const { return {}; }
  // A trunk on that card has computed pairs of them, or will: they count as this leg's.
  virtual void count_on_card(const LegCounters& /*counted*/) {}

  // ---- range by range -------------------------------------------------------------------------------------------
  // Legs whose answers come by themselves while this thread does something else (nodes). The dispatcher asks such a leg
  // for its ranges instead of calling collect(); the functions below are for these legs alone.
  virtual bool by_range() const { return false; }

  // Of an open ticket. progress() brings the news.
  virtual RangeState range_state(Ticket ticket, std::size_t range) const;
  // Adds the whole range, or, on error, nothing of it: then the answer was no lawful one, and the leg is wrong.
  virtual Status take(Ticket ticket, std::size_t range, kernels::SumsView sums, std::span<std::uint8_t> failed);
  // Of a batch of form kSlots, once its range is ready: slots [n_pairs, d_model] is overwritten with each pair's
  // output, unweighted, in the batch's order; undefined for pairs of failed rows.
  virtual void take_slots(Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed);
  // Why the open ranges of the ticket will never be answered: the leg is out, or it has refused this batch alone.
  virtual Status ticket_status(Ticket ticket) const;
  // From when on others should compute what is missing (docs/architecture.md, failure): measured, never a constant.
  virtual StepClock::TimePoint soft_limit(Ticket ticket) const;
  // The soft limit is over: suspect until an answer comes.
  virtual void set_suspect(Ticket ticket);
  // Ends a ticket, whatever came of it. Answers that come later are dropped; they still clear a suspicion.
  virtual void abandon(Ticket ticket);
  // An audit has found other bits than ours, or somebody else knows that the leg is of no use: it is out for good.
  virtual void put_out(LegState, const Error&) {}
  // No step will use this leg again: nothing that it borrowed is read after this.
  virtual void retire() {}
  // Adds what ::poll() should wait for, as long as anything is open.
  virtual void add_waits(std::vector<pollfd>& entries);
  // Why it is lost or wrong; null while it is neither.
  virtual const Error* why_out() const { return nullptr; }
};

}  // namespace terrace::legs
