#include "coordinator/legs/dispatcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

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
  for (LegWork& work : work_) {
    TERRACE_CHECK(!work.ticket, "a step begins before the one before it has ended");
    if (holds(*next, work.leg)) continue;
    work.leg->retire();
    work.account->before += work.leg->counters();
    work.account->entry->set_experts(0);
    work.account->entry->set_counters(LegCounters(work.account->before) += work.account->extra);
  }
  work_.clear();
  work_.resize(next->legs.size());
  has_nodes_ = false;
  for (std::size_t i = 0; i < work_.size(); ++i) {
    LegWork& work = work_[i];
    work.leg = next->legs[i].get();
    work.account = &account_of(*work.leg);
    has_nodes_ = has_nodes_ || work.leg->by_range();
    work.account->entry->set_experts(next->owners.n_slabs(i));
    work.told = work.leg->state();
    work.account->entry->set_state(work.told, work.leg->why_out() != nullptr ? work.leg->why_out()->text() : "");
    tell_counters(work);
  }
  std::swap(epoch_, next);
  find_card();
  if (next == nullptr) return;
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(next));
}

// ---- a card that holds everything -----------------------------------------------------------------------------------

void Dispatcher::find_card() {
  all_on_card_ = nullptr;
  std::size_t n_owners = 0;
  for (std::size_t i = 0; i < work_.size(); ++i) {
    if (epoch_->owners.n_slabs(i) == 0) continue;
    ++n_owners;
    if (!work_[i].leg->slabs_on_card().empty()) all_on_card_ = &work_[i];
  }
  if (n_owners != 1) all_on_card_ = nullptr;
}

std::span<const kernels::SlabView> Dispatcher::slabs_on_card() {
  if (all_on_card_ == nullptr) return {};
  return all_on_card_->leg->slabs_on_card();
}

void Dispatcher::count_on_card(const std::uint16_t* experts, std::uint32_t n_rows) {
  const std::uint32_t n_layers = first_owners_.n_layers();
  for (std::uint32_t layer = 0; layer < n_layers; ++layer)
    for (std::size_t i = 0; i < std::size_t{n_rows} * top_k_; ++i) use_.add(layer, *experts++, 1);
  all_on_card_->leg->count_on_card(n_layers, n_rows, top_k_);
  tell_counters(*all_on_card_);
}

// ---- a layer's batches ----------------------------------------------------------------------------------------------

void Dispatcher::take_row_memory() {
  const auto free = std::find_if(row_memories_.begin(), row_memories_.end(),
                                 [](const auto& memory) { return memory.use_count() == 1; });
  rows_ = free != row_memories_.end() ? *free : row_memories_.emplace_back(std::make_shared<RowMemory>());
}

// Each row once per class that this layer's gate and up need (docs/numerics.md 2). Rows that stay as they are are
// copied where a node gets them: it may have to send them after this layer.
void Dispatcher::quantise(const RoutedRows& routed) {
  const kernels::ExpertKernels& layer = kernels_[routed.layer];
  const std::size_t d_model = layer.shape.d_model;
  const ActivationClass classes[] = {layer.gate_class(), layer.up_class()};
  rows_ = nullptr;
  take_row_memory();
  for (std::size_t i = 0; i < 2; ++i) {
    if (i == 1 && classes[1] == classes[0]) continue;
    if (classes[i] == ActivationClass::kF32 && !has_nodes_) continue;
    std::vector<std::byte>& rows = rows_->rows[static_cast<std::size_t>(classes[i])];
    const std::size_t bytes = row_bytes(classes[i], d_model);
    if (rows.size() < bytes * routed.n_rows) rows.resize(bytes * routed.n_rows);
    if (classes[i] == ActivationClass::kF32) {
      std::memcpy(rows.data(), routed.rows, bytes * routed.n_rows);
      continue;
    }
    const auto quantise_row = [&](std::size_t row, std::size_t) {
      ops_.quantize_row(classes[i], routed.rows + row * d_model, d_model, rows.data() + row * bytes);
    };
    parallel_.run(routed.n_rows, quantise_row);
  }
}

kernels::RowsView Dispatcher::rows_in(ActivationClass activation, const RoutedRows& routed) const {
  kernels::RowsView view;
  view.activation = activation;
  view.stride = row_bytes(activation, kernels_[routed.layer].shape.d_model);
  view.data = activation == ActivationClass::kF32 && !has_nodes_
                  ? reinterpret_cast<const std::byte*>(routed.rows)
                  : rows_->rows[static_cast<std::size_t>(activation)].data();
  return view;
}

// A counting sort by expert; rows stay in order. Then each leg's pairs, still by expert.
void Dispatcher::sort_pairs(const RoutedRows& routed) {
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
  for (LegWork& work : work_) work.pairs.clear();
  const auto owners = table.owners(routed.layer);
  for (const kernels::Pair& pair : sorted_) work_[owners[pair.expert]].pairs.push_back(pair);
}

void Dispatcher::cut_ranges(const RoutedRows& routed) {
  ranges_.clear();
  const std::uint32_t rows = routed.priority == Priority::kDecode ? routed.n_rows : kPromptRangeRows;
  for (std::uint32_t first = 0; first < routed.n_rows; first += rows)
    ranges_.push_back({first, std::min(rows, routed.n_rows - first)});
}

void Dispatcher::open_ranges(LegWork& work) {
  work.open.assign(ranges_.size(), 1);
  work.n_open = ranges_.size();
}

// The leg gives no answer to what is open: the backstop will.
void Dispatcher::orphan(LegWork& work, const Error& why) {
  work.orphaned = true;
  work.why = why;
  if (work.leg->by_range() && work.ticket) {
    work.leg->abandon(*work.ticket);
    work.ticket.reset();
  }
  tell_state(work);
}

// A suspect leg gets no work until it answers, and one that is out none at all.
bool Dispatcher::must_skip(LegWork& work) {
  if (!work.leg->by_range() || backstop_ == nullptr) return false;
  if (work.leg->state() == LegState::kSuspect) work.leg->progress();
  return work.leg->state() != LegState::kOk;
}

Status Dispatcher::submit_to(std::size_t leg, const RoutedRows& routed) {
  LegWork& work = work_[leg];
  if (work.pairs.empty()) return {};
  if (must_skip(work)) {
    open_ranges(work);
    work.account->extra.skipped += 1;
    work.account->extra.pairs += work.pairs.size();
    const Error* why = work.leg->why_out();
    orphan(work, why != nullptr ? *why : Error(ErrorCode::kDeadline, work.leg->name() + ": has not answered yet"));
    return {};
  }
  LegBatch batch;
  batch.epoch = epoch_->acknowledged[leg];
  batch.layer = routed.layer;
  batch.gate_rows = gate_rows_;
  batch.up_rows = up_rows_;
  batch.n_rows = routed.n_rows;
  batch.ranges = ranges_;
  batch.priority = routed.priority;
  if (work.leg->by_range()) {
    batch.rows_owner = rows_;
    if (auditor_ != nullptr) auditor_->take(*work.leg, batch, work.pairs);
    if (work.pairs.empty()) return {};
    hedge_tokens_ = std::min(hedge_tokens_ + kHedgesABatch, kMostHedgeTokens);
    open_ranges(work);
  }
  batch.pairs = work.pairs;
  auto ticket = work.leg->submit(batch);
  if (ticket.ok()) {
    work.ticket = *ticket;
    return {};
  }
  if (backstop_ == nullptr) return ticket.error();
  open_ranges(work);
  work.account->extra.pairs += work.pairs.size();
  orphan(work, ticket.error());
  return {};
}

Status Dispatcher::submit(const RoutedRows& routed) {
  for (LegWork& work : work_) {
    TERRACE_CHECK(!work.ticket, "submit() before collect()");
    work.n_open = 0;
    work.late = work.orphaned = work.raced = false;
    work.hedge = Hedge::kNone;
    work.why.reset();
  }
  layer_ = routed.layer;
  n_rows_ = routed.n_rows;
  d_model_ = kernels_[routed.layer].shape.d_model;
  quantise(routed);
  gate_rows_ = rows_in(kernels_[routed.layer].gate_class(), routed);
  up_rows_ = rows_in(kernels_[routed.layer].up_class(), routed);
  sort_pairs(routed);
  cut_ranges(routed);
  Status status;
  for (std::size_t i = 1; i <= work_.size(); ++i) {  // nodes first, then the host (leg 0)
    status = submit_to(i % work_.size(), routed);
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    const Status discarded = discard();
    const bool uncertain = !discarded.ok() && discarded.error().code() == ErrorCode::kUncertain;
    return uncertain ? discarded : status;
  }
  if (auditor_ != nullptr) auditor_->submit();
  give_backstop_work();  // its slabs are read while own legs compute
  return status;
}

}  // namespace terrace::legs
