#include "coordinator/legs/dispatcher.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/activations/rows.h"

namespace terrace::legs {
namespace {

std::shared_ptr<const Epoch> borrowed_epoch(const OwnerTable& owners, const std::vector<Leg*>& legs) {
  std::vector<std::shared_ptr<Leg>> borrowed;
  for (Leg* leg : legs) borrowed.emplace_back(std::shared_ptr<void>(), leg);
  return make_epoch(owners, std::move(borrowed));
}

bool holds(const Epoch& epoch, const Leg* leg) {
  return std::any_of(epoch.legs.begin(), epoch.legs.end(), [&](const auto& other) { return other.get() == leg; });
}

}  // namespace

Dispatcher::Dispatcher(DispatcherParts parts)
    : first_owners_(parts.epoch->owners),
      kernels_(std::move(parts.kernels)),
      top_k_(parts.top_k),
      parallel_(parts.parallel),
      ops_(parts.ops),
      backstop_(parts.backstop),
      auditor_(parts.auditor),
      board_(parts.board != nullptr ? *parts.board : own_board_),
      clock_(parts.clock != nullptr ? *parts.clock : steady_clock()),
      waiting_(parts.waiting),
      use_(first_owners_.n_layers(), first_owners_.n_experts()),
      latest_(parts.epoch) {
  TERRACE_CHECK(kernels_.size() == first_owners_.n_layers(), "the owner table has other layers");
  for (std::size_t place = 0; place < flights_.size(); ++place) flights_[place].place = place;
  adopt(std::move(parts.epoch));
}

Dispatcher::Dispatcher(const OwnerTable& owners, std::vector<Leg*> legs, std::vector<kernels::ExpertKernels> kernels,
                       std::uint32_t top_k, Parallel& parallel, const kernels::Ops& ops)
    : Dispatcher(DispatcherParts{.epoch = borrowed_epoch(owners, legs),
                                 .kernels = std::move(kernels),
                                 .top_k = top_k,
                                 .parallel = parallel,
                                 .ops = ops}) {}

Dispatcher::~Dispatcher() = default;

// ---- epochs ---------------------------------------------------------------------------------------------------------

void Dispatcher::publish(std::shared_ptr<const Epoch> epoch) {
  TERRACE_CHECK(
      epoch->owners.n_layers() == first_owners_.n_layers() && epoch->owners.n_experts() == first_owners_.n_experts(),
      "an epoch of another model");
  const std::lock_guard lock(mutex_);
  if (published_) retired_.push_back(std::move(published_));  // no step has used it
  published_ = latest_ = std::move(epoch);
  has_published_.store(true, std::memory_order_release);
}

std::shared_ptr<const Epoch> Dispatcher::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

std::vector<std::shared_ptr<const Epoch>> Dispatcher::take_retired() {
  const std::lock_guard lock(mutex_);
  return std::exchange(retired_, {});
}

void Dispatcher::begin_step() {
  TERRACE_CHECK(n_flights_ == 0, "a step begins before the one before it has ended");
  ++step_;
  if (auditor_ != nullptr) auditor_->begin_step(step_);
  if (!has_published_.load(std::memory_order_acquire)) return;
  std::shared_ptr<const Epoch> next;
  {
    const std::lock_guard lock(mutex_);
    next = std::move(published_);
    has_published_.store(false, std::memory_order_relaxed);
  }
  adopt(std::move(next));
}

Dispatcher::Account& Dispatcher::account_of(const Leg& leg) {
  LegEntry& entry = board_.entry(leg.name(), leg.kind());
  for (auto& account : accounts_)
    if (account->entry == &entry) return *account;
  accounts_.push_back(std::make_unique<Account>(Account{.entry = &entry, .before = {}, .extra = {}}));
  return *accounts_.back();
}

// Legs that leave take their last look at the wire here: nobody polls them after this.
void Dispatcher::adopt(std::shared_ptr<const Epoch> next) {
  for (LegWork& work : flights_[0].work) {
    if (holds(*next, work.leg)) continue;
    work.leg->retire();
    work.account->before += work.leg->counters();
    work.account->entry->set_experts(0);
    work.account->entry->set_counters(LegCounters(work.account->before) += work.account->extra);
  }
  has_nodes_ = false;
  std::vector<LegWork> seats(next->legs.size());
  for (std::size_t i = 0; i < seats.size(); ++i) {
    LegWork& work = seats[i];
    work.leg = next->legs[i].get();
    work.account = &account_of(*work.leg);
    has_nodes_ = has_nodes_ || (work.leg->by_range() && next->owners.n_slabs(i) > 0);
    work.account->entry->set_experts(next->owners.n_slabs(i));
    work.account->told = work.leg->state();
    // A lost node may have been found wrong since the epoch was made: it stays wrong.
    if (work.account->told != LegState::kLost || work.account->entry->state() != LegState::kWrong)
      work.account->entry->set_state(work.account->told,
                                     work.leg->why_out() != nullptr ? work.leg->why_out()->text() : "");
    tell_counters(work);
  }
  for (Flight& flight : flights_) flight.work = seats;
  std::swap(epoch_, next);
  find_card();
  if (next == nullptr) return;
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(next));
}

// ---- a card that holds everything -----------------------------------------------------------------------------------

void Dispatcher::find_card() {
  card_.reset();
  std::size_t n_owners = 0, n_cards = 0;
  const std::vector<LegWork>& legs = flights_[0].work;
  for (std::size_t i = 0; i < legs.size(); ++i) {
    if (epoch_->owners.n_slabs(i) == 0) continue;
    ++n_owners;
    if (legs[i].leg->slabs_on_card().empty()) continue;
    ++n_cards;
    card_ = i;
  }
  if (n_cards != 1 || !holds_what_it_owns(*card_)) card_.reset();
  all_on_card_ = card_ && n_owners == 1;
  launches_on_card_ = n_cards > 0 && !card_;
}

// A card may still have in its memory what another leg owns in this epoch.
bool Dispatcher::holds_what_it_owns(std::size_t leg) const {
  const std::span<const kernels::SlabView> slabs = flights_[0].work[leg].leg->slabs_on_card();
  const OwnerTable& table = epoch_->owners;
  for (std::uint32_t layer = 0; layer < table.n_layers(); ++layer)
    for (std::uint32_t expert = 0; expert < table.n_experts(); ++expert) {
      const bool holds = slabs[std::size_t{layer} * table.n_experts() + expert].gate != nullptr;
      if (holds != (table.owners(layer)[expert] == leg)) return false;
    }
  return true;
}

std::span<const kernels::SlabView> Dispatcher::slabs_on_card() {
  if (!all_on_card_) return {};
  return part_on_card();
}

std::span<const kernels::SlabView> Dispatcher::part_on_card() {
  if (!card_) return {};
  return flights_[0].work[*card_].leg->slabs_on_card();
}

void Dispatcher::count_on_card(const std::uint16_t* experts, std::uint32_t n_rows, std::uint64_t ns) {
  const std::uint32_t n_layers = first_owners_.n_layers();
  for (std::uint32_t layer = 0; layer < n_layers; ++layer)
    for (std::size_t i = 0; i < std::size_t{n_rows} * top_k_; ++i) use_.add(layer, *experts++, 1);
  const std::uint64_t rows = std::uint64_t{n_layers} * n_rows;
  LegWork& card = flights_[0].work[*card_];
  card.leg->count_on_card({.batches = n_layers, .rows = rows, .pairs = rows * top_k_, .compute_us = ns / 1000});
  tell_counters(card);
}

// The card's pairs of this layer are computed by the trunk on it.
void Dispatcher::leave_to_card(const RoutedRows& routed, Flight& flight) {
  TERRACE_CHECK(card_.has_value(), "rows without the pairs of a card that there is not");
  LegWork& card = flight.work[*card_];
  card.leg->count_on_card({.wait_us = routed.card_wait_us});
  if (card.pairs.empty()) return;
  row_seen_.assign(routed.n_rows, 0);
  for (const kernels::Pair& pair : card.pairs) row_seen_[pair.row] = 1;
  const auto rows = static_cast<std::uint64_t>(std::count(row_seen_.begin(), row_seen_.end(), 1));
  card.leg->count_on_card({.batches = 1, .rows = rows, .pairs = card.pairs.size()});
  card.pairs.clear();
}

// ---- a layer's batches ----------------------------------------------------------------------------------------------

std::shared_ptr<Dispatcher::RowMemory> Dispatcher::take_row_memory() {
  const auto free = std::find_if(row_memories_.begin(), row_memories_.end(),
                                 [](const auto& memory) { return memory.use_count() == 1; });
  return free != row_memories_.end() ? *free : row_memories_.emplace_back(std::make_shared<RowMemory>());
}

// Each row once per class that this layer's gate and up need (docs/numerics.md 2). Rows that stay as they are are
// copied where a node gets them: it may have to send them after this layer.
void Dispatcher::quantise(const RoutedRows& routed, Flight& flight) {
  const kernels::ExpertKernels& layer = kernels_[routed.layer];
  const std::size_t d_model = layer.shape.d_model;
  const ActivationClass classes[] = {layer.gate_class(), layer.up_class()};
  flight.rows = take_row_memory();
  for (std::size_t i = 0; i < 2; ++i) {
    if (i == 1 && classes[1] == classes[0]) continue;
    if (classes[i] == ActivationClass::kF32 && !has_nodes_) continue;
    std::vector<std::byte>& rows = flight.rows->rows[static_cast<std::size_t>(classes[i])];
    const std::size_t bytes = row_bytes(classes[i], d_model);
    if (rows.size() < bytes * routed.n_rows) rows.resize(bytes * routed.n_rows);
    kernels::quantize_rows(ops_.quantize_row, classes[i], {routed.rows, routed.n_rows, d_model}, rows.data(),
                           parallel_);
  }
  flight.gate_rows = rows_in(classes[0], routed, flight);
  flight.up_rows = rows_in(classes[1], routed, flight);
}

kernels::RowsView Dispatcher::rows_in(ActivationClass activation, const RoutedRows& routed,
                                      const Flight& flight) const {
  kernels::RowsView view;
  view.activation = activation;
  view.stride = row_bytes(activation, flight.d_model);
  view.data = activation == ActivationClass::kF32 && !has_nodes_
                  ? reinterpret_cast<const std::byte*>(routed.rows)
                  : flight.rows->rows[static_cast<std::size_t>(activation)].data();
  return view;
}

// A counting sort by expert; rows stay in order. Then each leg's pairs, still by expert.
void Dispatcher::sort_pairs(const RoutedRows& routed, Flight& flight) {
  const OwnerTable& table = epoch_->owners;
  const std::size_t n_pairs = std::size_t{routed.n_rows} * top_k_;
  expert_start_.assign(table.n_experts() + 1, 0);
  for (std::size_t i = 0; i < n_pairs; ++i) ++expert_start_[routed.experts[i] + 1];
  for (std::uint32_t e = 0; e < table.n_experts(); ++e)
    if (expert_start_[e + 1] != 0) use_.add(routed.layer, e, expert_start_[e + 1]);
  for (std::size_t e = 1; e < expert_start_.size(); ++e) expert_start_[e] += expert_start_[e - 1];
  sorted_.resize(n_pairs);
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const std::uint16_t expert = routed.experts[i];
    sorted_[expert_start_[expert]++] = {static_cast<std::uint16_t>(i / top_k_), expert, routed.weights[i]};
  }
  for (LegWork& work : flight.work) work.pairs.clear();
  const auto owners = table.owners(routed.layer);
  for (const kernels::Pair& pair : sorted_) flight.work[owners[pair.expert]].pairs.push_back(pair);
}

void Dispatcher::cut_ranges(Flight& flight) {
  flight.ranges.clear();
  const std::uint32_t rows = flight.priority == Priority::kDecode ? flight.n_rows : kPromptRangeRows;
  for (std::uint32_t first = 0; first < flight.n_rows; first += rows)
    flight.ranges.push_back({first, std::min(rows, flight.n_rows - first)});
}

void Dispatcher::open_ranges(const Flight& flight, LegWork& work) {
  work.open.assign(flight.ranges.size(), 1);
  work.n_open = flight.ranges.size();
}

// The leg gives no answer to what is open: the backstop will.
void Dispatcher::orphan(Flight& flight, LegWork& work, const Error& why) {
  work.orphaned = true;
  work.why = why;
  if (work.leg->by_range() && work.ticket) {
    work.leg->abandon(*work.ticket);
    work.ticket.reset();
  }
  tell_state(flight, work);
}

// A suspect leg gets no work until it answers, and one that is out none at all.
bool Dispatcher::must_skip(LegWork& work) {
  if (!work.leg->by_range() || backstop_ == nullptr) return false;
  if (work.leg->state() == LegState::kSuspect) work.leg->progress();
  return work.leg->state() != LegState::kOk;
}

// All but its pairs.
LegBatch Dispatcher::batch_of(const Flight& flight, std::size_t leg) const {
  LegBatch batch;
  batch.epoch = epoch_->acknowledged[leg];
  batch.layer = flight.layer;
  batch.gate_rows = flight.gate_rows;
  batch.up_rows = flight.up_rows;
  batch.n_rows = flight.n_rows;
  batch.ranges = flight.ranges;
  batch.priority = flight.priority;
  if (flight.work[leg].leg->by_range()) batch.rows_owner = flight.rows;
  return batch;
}

Status Dispatcher::submit_to(std::size_t leg, Flight& flight) {
  LegWork& work = flight.work[leg];
  if (work.pairs.empty()) return {};
  if (must_skip(work)) {
    open_ranges(flight, work);
    work.account->extra.skipped += 1;
    work.account->extra.pairs += work.pairs.size();
    const Error* why = work.leg->why_out();
    orphan(flight, work,
           why != nullptr ? *why : Error(ErrorCode::kDeadline, work.leg->name() + ": has not answered yet"));
    return {};
  }
  if (work.leg->by_range()) {
    if (auditor_ != nullptr) auditor_->take(flight.place, *work.leg, batch_of(flight, leg), work.pairs);
    if (work.pairs.empty()) return {};
    hedge_tokens_ = std::min(hedge_tokens_ + kHedgesABatch, kMostHedgeTokens);
    open_ranges(flight, work);
  }
  return hand_out(leg, flight);
}

// Whether an older flight's batch waits for the leg's room: it comes first, also where a smaller one would fit.
bool Dispatcher::is_held_before(std::size_t leg, const Flight& flight) const {
  for (std::size_t i = 0; i < n_flights_; ++i) {
    const Flight& older = flights_[(oldest_ + i) % flights_.size()];
    if (&older == &flight) return false;
    if (older.work[leg].held) return true;
  }
  return false;
}

// A leg that has room for fewer batches gets a younger flight's when an older one's has ended.
Status Dispatcher::hand_out(std::size_t leg, Flight& flight) {
  LegWork& work = flight.work[leg];
  if (work.held = is_held_before(leg, flight); work.held) return {};
  LegBatch batch = batch_of(flight, leg);
  batch.pairs = work.pairs;
  work.handed_out = clock_.now();
  auto ticket = work.leg->submit(batch);
  work.held = !ticket.ok() && ticket.error().code() == ErrorCode::kBusy && &flight != &oldest();
  if (work.held) return {};
  if (ticket.ok()) {
    work.ticket = *ticket;
    return {};
  }
  if (backstop_ == nullptr) return ticket.error();
  open_ranges(flight, work);
  work.account->extra.pairs += work.pairs.size();
  orphan(flight, work, ticket.error());
  return {};
}

Status Dispatcher::submit_held() {
  for (std::size_t i = 0; i < n_flights_; ++i) {
    Flight& flight = flights_[(oldest_ + i) % flights_.size()];
    for (std::size_t leg = 0; leg < flight.work.size(); ++leg)
      if (flight.work[leg].held) TERRACE_RETURN_IF_ERROR(hand_out(leg, flight));
  }
  return {};
}

Dispatcher::Flight& Dispatcher::begin_flight(const RoutedRows& routed) {
  TERRACE_CHECK(n_flights_ < flights_.size(), "submit() of a further layer before collect() of the oldest");
  Flight& flight = flights_[(oldest_ + n_flights_++) % flights_.size()];
  for (LegWork& work : flight.work) {
    work.n_open = 0;
    work.late = work.orphaned = work.raced = work.held = false;
    work.hedge = Hedge::kNone;
    work.why.reset();
  }
  flight.layer = routed.layer;
  flight.priority = routed.priority;
  flight.n_rows = routed.n_rows;
  flight.d_model = kernels_[routed.layer].shape.d_model;
  return flight;
}

Status Dispatcher::submit(const RoutedRows& routed) {
  Flight& flight = begin_flight(routed);
  quantise(routed, flight);
  sort_pairs(routed, flight);
  if (routed.without_card) leave_to_card(routed, flight);
  cut_ranges(flight);
  for (std::size_t i = 1; i <= flight.work.size(); ++i) {  // nodes first, then the host (leg 0)
    const Status status = submit_to(i % flight.work.size(), flight);
    if (!status.ok()) return end_step(status);
  }
  if (auditor_ != nullptr) auditor_->submit(flight.place);
  give_backstop_work();  // its slabs are read while own legs compute
  return {};
}

}  // namespace terrace::legs
