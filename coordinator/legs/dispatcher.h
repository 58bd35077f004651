// Cuts a layer's rows into one batch per leg by the epoch's owner table, hands them out (nodes first), and adds the
// legs' integer sums (docs/architecture.md, one layer of one step; failure). Placement cannot change a bit: sums are
// integers, and of each row range of each leg's batch exactly one whole sum is added, the leg's or the backstop's.
//
// Several layers' batches may be under way, the parts of a step (RoutedExperts): each is a flight of its own, which
// ends in the order in which it began. The backstop works for the oldest one first.
//
// A leg that is late, lost or wrong ends no step: its pairs are computed by the backstop. Only where that cannot read
// the file either, or where there is none, does a step end with an error.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/base/parallel.h"
#include "common/threads/waiting.h"
#include "coordinator/legs/auditor.h"
#include "coordinator/legs/backstop.h"
#include "coordinator/legs/epoch.h"
#include "coordinator/legs/expert_use.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/leg_board.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/legs/routed_experts.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

// Rows of one row range of a prompt batch: the unit in which legs answer. Decode batches are one range.
inline constexpr std::uint32_t kPromptRangeRows = 256;

// At most one of a hundred batches is hedged, but for those to a leg that was suspect already and those that have taken
// twice their soft limit. Batches earn tokens; as many as kept at the most may be spent at once.
inline constexpr double kHedgesABatch = 0.01;
inline constexpr double kMostHedgeTokens = 10;

struct DispatcherParts {
  std::shared_ptr<const Epoch> epoch;
  std::vector<kernels::ExpertKernels> kernels;  // [n_layers], for the rows' classes
  std::uint32_t top_k = 0;                      // experts a row
  Parallel& parallel;                           // all borrowed from here on
  const kernels::Ops& ops;
  Backstop* backstop = nullptr;  // null: a leg that fails ends the step
  LegBoard* board = nullptr;     // null: one of the dispatcher's own
  StepClock* clock = nullptr;    // null: the steady one
  Auditor* auditor = nullptr;    // null: nothing is audited
  Waiting waiting = Waiting::kBlock;
};

class Dispatcher final : public RoutedExperts {
 public:
  explicit Dispatcher(DispatcherParts parts);
  // Without a backstop. legs[i] is leg i of `owners` (0 the host); all outlive the dispatcher.
  Dispatcher(const OwnerTable& owners, std::vector<Leg*> legs, std::vector<kernels::ExpertKernels> kernels,
             std::uint32_t top_k, Parallel& parallel, const kernels::Ops& ops);
  ~Dispatcher() override;

  void begin_step() override;
  std::uint64_t step() const override { return step_; }
  std::uint64_t uncertain_since() const override { return auditor_ == nullptr ? 0 : auditor_->uncertain_since(); }
  bool computes_elsewhere() const override { return has_nodes_; }
  std::span<const kernels::SlabView> slabs_on_card() override;
  std::span<const kernels::SlabView> part_on_card() override;
  bool launches_on_card() const override { return launches_on_card_; }
  // Of the step that began last: slabs_on_card() is not empty.
  bool all_on_card() const { return all_on_card_; }
  void count_on_card(const std::uint16_t* experts, std::uint32_t n_rows, std::uint64_t ns) override;
  Status submit(const RoutedRows& routed) override;
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  Status abandon() override;
  // Own legs call it between slices.
  void progress() override;

  // ---- any thread ---------------------------------------------------------------------------------------------
  // The next step begins with this one. Its legs are the step thread's from now on.
  void publish(std::shared_ptr<const Epoch> epoch);
  // What the next step begins with.
  std::shared_ptr<const Epoch> latest() const;
  // Epochs that no step uses any more, so that somebody else's thread ends their sessions.
  std::vector<std::shared_ptr<const Epoch>> take_retired();
  // Of the first epoch.
  const OwnerTable& owners() const { return first_owners_; }
  const ExpertUse& use() const { return use_; }
  LegBoard& board() const { return board_; }

 private:
  // What is counted for a name, over all its sessions.
  struct Account {
    LegEntry* entry = nullptr;
    LegCounters before;             // of sessions that have ended
    LegCounters extra;              // what the dispatcher counts beside the leg
    LegState told = LegState::kOk;  // to the board
  };
  enum class Hedge : std::uint8_t { kNone, kWanted, kRunning, kFailed };
  struct LegWork {
    Leg* leg = nullptr;
    Account* account = nullptr;
    std::vector<kernels::Pair> pairs;
    std::optional<Ticket> ticket;
    std::vector<std::uint8_t> open;  // [ranges] 1: its sum is missing. Legs by range, and those that failed
    std::size_t n_open = 0;
    bool held = false;        // the leg had no room for it beside older flights' batches
    bool late = false;        // past its soft limit
    bool costs_token = true;  // its hedge does: the leg was not suspect before it was late
    bool orphaned = false;    // the leg will not answer: the backstop's sum is the only one to come
    bool raced = false;       // the leg answered beside a hedge
    Hedge hedge = Hedge::kNone;
    std::optional<Error> why;  // it is orphaned
    StepClock::TimePoint handed_out{}, wait_from{};
  };
  // The rows of a layer in each class that is needed. Legs may keep one longer than its layer.
  struct RowMemory {
    std::vector<std::byte> rows[kActivationClasses];
  };
  // A layer from submit() to the end of its collect().
  struct Flight {
    std::size_t place = 0;  // in flights_
    std::uint32_t layer = 0;
    Priority priority = Priority::kDecode;
    std::shared_ptr<RowMemory> rows;
    kernels::RowsView gate_rows, up_rows;
    std::uint32_t n_rows = 0;
    std::size_t d_model = 0;
    std::vector<RowRange> ranges;
    std::vector<LegWork> work;  // [legs]

    std::size_t range_of(std::uint32_t row) const { return row / ranges[0].count; }
    bool anything_open() const;
  };

  Flight& oldest() { return flights_[oldest_]; }

  // submit()
  Flight& begin_flight(const RoutedRows& routed);
  void adopt(std::shared_ptr<const Epoch> next);
  void find_card();
  bool holds_what_it_owns(std::size_t leg) const;
  void leave_to_card(const RoutedRows& routed, Flight& flight);
  Account& account_of(const Leg& leg);
  void quantise(const RoutedRows& routed, Flight& flight);
  std::shared_ptr<RowMemory> take_row_memory();
  kernels::RowsView rows_in(ActivationClass activation, const RoutedRows& routed, const Flight& flight) const;
  void sort_pairs(const RoutedRows& routed, Flight& flight);
  static void cut_ranges(Flight& flight);
  LegBatch batch_of(const Flight& flight, std::size_t leg) const;
  Status submit_to(std::size_t leg, Flight& flight);
  Status hand_out(std::size_t leg, Flight& flight);
  bool is_held_before(std::size_t leg, const Flight& flight) const;
  Status submit_held();
  bool must_skip(LegWork& work);
  void orphan(Flight& flight, LegWork& work, const Error& why);
  static void open_ranges(const Flight& flight, LegWork& work);

  // collect()
  void clear(kernels::SumsView sums, std::uint32_t n_rows);
  Status collect_own(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed);
  Status collect_by_range(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed);
  Status poll_legs(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed);
  void take_ready(Flight& flight, LegWork& work, kernels::SumsView sums, std::span<std::uint8_t> failed);
  void leg_is_through(LegWork& work);
  void judge_limits(Flight& flight, StepClock::TimePoint now);
  bool may_hedge(const LegWork& work, StepClock::TimePoint now);
  static StepClock::TimePoint last_limit(const LegWork& work);
  bool spend_token();
  static bool wants_backstop(const Flight& flight);
  void give_backstop_work();
  void give_backstop_work(Flight& flight);
  void begin_job(Flight& flight, LegWork& work);
  Result<bool> advance_job(kernels::SumsView sums, std::span<std::uint8_t> failed);
  void finish_job(kernels::SumsView sums, std::span<std::uint8_t> failed);
  void drop_job();
  void end_job();
  void wait(Flight& flight, StepClock::TimePoint now);
  void end_flight();
  Status audit(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed);
  Status end_step(const Status& why);
  void tell_state(const Flight& flight, LegWork& work);
  void tell_counters(LegWork& work);

  const OwnerTable first_owners_;
  std::vector<kernels::ExpertKernels> kernels_;  // [n_layers]
  std::uint32_t top_k_;
  Parallel& parallel_;
  const kernels::Ops& ops_;
  Backstop* const backstop_;
  Auditor* const auditor_;
  std::uint64_t step_ = 0;
  mutable LegBoard own_board_;
  LegBoard& board_;
  StepClock& clock_;
  const Waiting waiting_;

  std::shared_ptr<const Epoch> epoch_;  // of the step
  bool has_nodes_ = false;              // that own experts
  std::optional<std::size_t> card_;     // the one card that owns experts, as a leg
  bool all_on_card_ = false;            // nobody else does
  bool launches_on_card_ = false;       // a card owns experts as any leg does
  std::vector<std::uint8_t> row_seen_;  // scratch of leave_to_card()
  ExpertUse use_;
  std::vector<std::shared_ptr<RowMemory>> row_memories_;
  std::vector<std::uint32_t> expert_start_;  // [n_experts + 1], scratch of sort_pairs()
  std::vector<kernels::Pair> sorted_;        // all pairs by expert, then row
  std::array<Flight, kMostLayersOpen> flights_;
  std::size_t oldest_ = 0, n_flights_ = 0;  // those under way: from oldest_ on, in a ring
  std::vector<std::unique_ptr<Account>> accounts_;
  std::vector<pollfd> waits_;
  double hedge_tokens_ = kMostHedgeTokens;

  // What the backstop computes now.
  Flight* job_flight_ = nullptr;
  LegWork* job_ = nullptr;
  std::vector<kernels::Pair> job_pairs_;
  std::vector<std::int64_t> job_sums_;  // [n_rows, d_model]
  std::vector<std::uint8_t> job_failed_;
  StepClock::TimePoint job_begin_{};
  std::uint64_t job_bytes_before_ = 0;

  std::atomic<bool> has_published_ = false;
  mutable std::mutex mutex_;                // guards the three below
  std::shared_ptr<const Epoch> latest_;     // published last
  std::shared_ptr<const Epoch> published_;  // and not adopted yet
  std::vector<std::shared_ptr<const Epoch>> retired_;
};

}  // namespace terrace::legs
