#include "tier_node/session/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/arena/hot_part.h"
#include "common/base/check.h"

namespace terrace::node {
namespace {

Error invalid(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

}  // namespace

Session::Session(Identity identity, Model model, const SessionLimits& limits, TimePoint lease_end,
                 std::function<void(const Session&)> on_end)
    : identity_(std::move(identity)),
      model_(std::move(model)),
      limits_(limits),
      on_end_(std::move(on_end)),
      lease_end_(lease_end.time_since_epoch().count()),
      epochs_(model_.max_live_items()) {}

std::string Session::name() const { return fmt::format("session {} of {}", number(), coordinator()); }

Status Session::begin_probe(TimePoint until) {
  const std::lock_guard lock(mutex_);
  if (closed_) return end_reason();
  if (is_probe()) return invalid(fmt::format("{} is a probe already", name()));
  if (reservations_.ram || reserving_.load(std::memory_order_acquire))
    return invalid(fmt::format("{} has a reservation; a probe begins without one", name()));
  probe_until_.store(until.time_since_epoch().count(), std::memory_order_release);
  return {};
}

Result<std::uint64_t> Session::reserve(arena::SlabStore& store, arena::SlabStore* card,
                                       const arena::ReservationTerms& asked, FunctionRef<bool()> go_on,
                                       FunctionRef<TimePoint()> new_lease_end) {
  if (is_probe() && asked.slabs > kMaxProbeBytes)
    return invalid(
        fmt::format("{} asks for {} bytes of slabs; a probe may have {}", name(), asked.slabs, kMaxProbeBytes));
  return outside_lease([&] { return take_reservations(store, card, reservation_terms(model_, limits_, asked), go_on); },
                       new_lease_end);
}

Result<std::uint64_t> Session::resize(std::uint64_t slab_bytes, FunctionRef<bool()> go_on,
                                      FunctionRef<TimePoint()> new_lease_end) {
  if (is_probe()) return invalid(fmt::format("{} is a probe, whose reservation stays as it is", name()));
  return outside_lease([&] { return change_reservation(slab_bytes, go_on); }, new_lease_end);
}

Result<std::uint64_t> Session::outside_lease(FunctionRef<Result<std::uint64_t>()> make,
                                             FunctionRef<TimePoint()> new_lease_end) {
  if (reserving_.exchange(true, std::memory_order_acq_rel))
    return Error(ErrorCode::kBusy, fmt::format("a reservation for {} is being made", name()));
  auto reserved = make();
  extend_lease(new_lease_end());
  reserving_.store(false, std::memory_order_release);
  return reserved;
}

Result<std::uint64_t> Session::take_reservations(arena::SlabStore& store, arena::SlabStore* card,
                                                 const arena::ReservationTerms& terms, FunctionRef<bool()> go_on) {
  {
    const std::lock_guard lock(mutex_);
    if (reservations_.ram) return invalid(fmt::format("{} has a reservation; release it first", name()));
  }
  // Touching takes as long as it takes: without the session's lock.
  const auto wanted = [&] { return !ended() && go_on(); };
  const SplitTerms split = split_terms(model_, terms, card == nullptr ? 0 : card->usage().free());
  Reservations taken;
  if (split.card > 0) {
    TERRACE_ASSIGN_OR_RETURN(taken.card, card->reserve({split.card, 0, 0}, wanted));
  }
  TERRACE_ASSIGN_OR_RETURN(taken.ram, store.reserve(split.ram, wanted));
  taken.slabs = terms.slabs;
  const std::lock_guard lock(mutex_);
  if (closed_) return end_reason();
  reservations_ = std::move(taken);
  return reservations_.total_bytes();
}

Result<std::uint64_t> Session::change_reservation(std::uint64_t slab_bytes, FunctionRef<bool()> go_on) {
  Reservations now;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return end_reason();
    if (!reservations_.ram) return invalid(fmt::format("{} has no reservation to change", name()));
    now = reservations_;
  }
  const std::uint64_t wanted = model_.stored_bytes(slab_bytes), before = now.ram->slab_bytes();
  const std::uint64_t less = now.slabs - std::min(now.slabs, wanted), more = wanted - std::min(wanted, now.slabs);
  if (more > ~before) return Error(ErrorCode::kOutOfMemory, "the share needs more than 2^64 bytes; lower it");
  const std::uint64_t asked = before - std::min(before, less) + more;
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t after, now.ram->resize(asked, [&] { return !ended() && go_on(); }));
  const std::lock_guard lock(mutex_);
  if (closed_) return end_reason();
  if (reservations_.ram != now.ram) return invalid(fmt::format("{} has released what was to be changed", name()));
  reservations_.slabs = now.slabs + after - before;
  if (after > arena::round_to_pages(asked))
    return Error(ErrorCode::kBusy, fmt::format("{} still holds slabs in {} bytes that it would give back; ask again",
                                               name(), after - arena::round_to_pages(asked)));
  return reservations_.total_bytes();
}

Status Session::release() {
  AssignmentRef abandoned;
  std::vector<EpochRef> forgotten;
  Reservations released;
  {
    const std::lock_guard lock(mutex_);
    if (!reservations_.ram) return invalid(fmt::format("{} has no reservation", name()));
    abandoned = std::exchange(pending_, nullptr);
    epochs_.move_live_to(forgotten);
    released = std::exchange(reservations_, {});
  }
  if (abandoned) abandoned->finish(Error(ErrorCode::kRefused, "the reservation was released"));
  return {};
}

Status Session::check_share(const std::vector<ShareItem>& items) const {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ShareItem& item = items[i];
    if (item.layer >= model_.n_layers() || item.expert >= model_.n_experts())
      return invalid(fmt::format("the share names expert {} of layer {}; the model has {} experts and {} layers",
                                 item.expert, item.layer, model_.n_experts(), model_.n_layers()));
    if (!model_.layer(item.layer).has_experts)
      return invalid(
          fmt::format("the share names expert {} of layer {}, which has no experts", item.expert, item.layer));
    if (i > 0 && !(items[i - 1] < item))
      return invalid(fmt::format("the share is not rising at layer {}, expert {}; each expert may stand once",
                                 item.layer, item.expert));
  }
  return {};
}

std::vector<arena::Reservation::Key> Session::keys_of(const std::vector<ShareItem>& items) const {
  std::vector<arena::Reservation::Key> keys;
  keys.reserve(items.size());
  for (const ShareItem& item : items) keys.push_back({model_.slab_id(item), model_.layer(item.layer).sizes});
  return keys;
}

Result<Session::Reservations> Session::reservations_for(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (closed_) return end_reason();
  if (!reservations_.ram) return invalid(fmt::format("{} assigns epoch {} without a reservation", name(), epoch));
  return reservations_;
}

std::vector<std::uint8_t> Session::choose_levels(const std::vector<ShareItem>& items,
                                                 const Reservations& reservations) const {
  std::vector<std::uint8_t> on_card(items.size(), 0);
  if (!reservations.card) return on_card;
  const std::vector<arena::Reservation::Key> keys = keys_of(items);
  on_card = reservations.card->holds(keys);
  const std::vector<std::uint8_t> in_ram = reservations.ram->holds(keys);
  std::vector<arena::HotCandidate> candidates;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (on_card[i] != 0 || in_ram[i] != 0) continue;
    const Model::Layer& layer = model_.layer(items[i].layer);
    candidates.push_back({items[i].layer, layer.on_card ? layer.sizes.stored_bytes() : 0});
    places.push_back(i);
  }
  const auto chosen = arena::choose_hot_part(candidates, reservations.card->free_slab_bytes());
  for (std::size_t i = 0; i < chosen.size(); ++i) on_card[places[i]] = chosen[i];
  return on_card;
}

Result<arena::Reservation::Found> Session::find_slabs(const std::vector<ShareItem>& items,
                                                      const std::vector<std::uint8_t>& on_card,
                                                      const Reservations& reservations) const {
  arena::Reservation::Found all{std::vector<arena::SlabRef>(items.size()), 0};
  for (const std::uint8_t level : {std::uint8_t{0}, std::uint8_t{1}}) {
    const auto& reservation = level == 0 ? reservations.ram : reservations.card;
    if (!reservation) continue;
    std::vector<ShareItem> part;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (on_card[i] != level) continue;
      part.push_back(items[i]);
      places.push_back(i);
    }
    TERRACE_ASSIGN_OR_RETURN(arena::Reservation::Found found, reservation->find_all(keys_of(part)));
    all.n_new += found.n_new;
    for (std::size_t i = 0; i < places.size(); ++i) all.slabs[places[i]] = std::move(found.slabs[i]);
  }
  return all;
}

Result<AssignmentRef> Session::begin_assign(std::uint64_t epoch, const std::vector<ShareItem>& items) {
  TERRACE_RETURN_IF_ERROR(check_share(items));
  // Looking up a whole share takes milliseconds: pieces of slabs need the session's lock, so without it.
  TERRACE_ASSIGN_OR_RETURN(const Reservations reservations, reservations_for(epoch));
  const std::vector<std::uint8_t> on_card = choose_levels(items, reservations);
  auto found = find_slabs(items, on_card, reservations);
  if (!found.ok()) return found.error().in(fmt::format("epoch {}", epoch));
  const bool brings_new = found->n_new > 0;
  auto assignment = std::make_shared<Assignment>(epoch, brings_new, items, std::move(found->slabs));
  for (std::size_t i = 0; i < items.size(); ++i) assignment->slots()[i].on_card = on_card[i] != 0;

  const std::lock_guard lock(mutex_);
  if (closed_) return end_reason();
  if (brings_new && pending_)
    return Error(ErrorCode::kBusy,
                 fmt::format("epoch {} still waits for its slabs; assign epoch {} after it", pending_->epoch(), epoch));
  TERRACE_RETURN_IF_ERROR(epochs_.announce(epoch, items.size(), brings_new));
  if (assignment->complete()) {
    make_live(*assignment);
  } else {
    pending_ = assignment;
  }
  return assignment;
}

void Session::make_live(Assignment& assignment) {
  std::vector<ShareItem> items;
  std::vector<arena::SlabRef> slabs;
  for (Assignment::Slot& slot : assignment.slots()) {
    TERRACE_CHECK(slot.ready->sizes() == model_.layer(slot.item.layer).sizes, "a slab of its layer's shape");
    items.push_back(slot.item);
    slabs.push_back(std::move(slot.ready));
  }
  epochs_.add(std::make_shared<const Epoch>(assignment.epoch(), std::move(items), std::move(slabs),
                                            assignment.brings_new_slabs()));
  assignment.finish(std::nullopt);
}

void Session::finish_assign(const AssignmentRef& assignment) {
  const std::lock_guard lock(mutex_);
  if (pending_ != assignment) return;
  pending_.reset();
  make_live(*assignment);
}

void Session::abandon_assign(const AssignmentRef& assignment, const Error& why) {
  AssignmentRef abandoned;
  {
    const std::lock_guard lock(mutex_);
    if (pending_ == assignment) abandoned = std::exchange(pending_, nullptr);
  }
  // Taken away before it is finished: no slab can make it live any more. Where one did already, this changes nothing.
  assignment->finish(why);
}

AssignmentRef Session::pending_assign() const {
  const std::lock_guard lock(mutex_);
  return pending_;
}

Result<std::shared_ptr<arena::HeldSlab>> Session::allocate_slab(const arena::SlabId& id, const arena::SlabSizes& sizes,
                                                                bool on_card) const {
  ReservationRef reservation;
  {
    const std::lock_guard lock(mutex_);
    reservation = on_card ? reservations_.card : reservations_.ram;
  }
  if (!reservation) return Error(ErrorCode::kRefused, fmt::format("{} has no reservation any more", name()));
  return reservation->allocate(id, sizes);
}

Status Session::forget(std::uint64_t epoch) {
  EpochRef forgotten;  // goes after the lock: its slabs take the store's, one by one
  AssignmentRef abandoned;
  {
    const std::lock_guard lock(mutex_);
    if (pending_ && pending_->epoch() == epoch) {
      abandoned = std::exchange(pending_, nullptr);
    } else {
      TERRACE_ASSIGN_OR_RETURN(forgotten, epochs_.forget(epoch));
    }
  }
  if (abandoned)
    abandoned->finish(Error(ErrorCode::kRefused, fmt::format("epoch {} was forgotten before it was ready", epoch)));
  return {};
}

Result<EpochRef> Session::find_epoch(std::uint64_t epoch) const {
  if (EpochRef live = epochs_.find_live(epoch)) return live;
  const std::lock_guard lock(mutex_);
  return epochs_.find(epoch);
}

Session::EpochSummary Session::newest_epoch() const {
  const std::lock_guard lock(mutex_);
  const EpochRef epoch = epochs_.newest();
  return epoch ? EpochSummary{epoch->number(), epoch->n_slabs()} : EpochSummary{};
}

void Session::close() { finish(Error(ErrorCode::kPeerGone, "closed by its coordinator"), true); }

void Session::finish(Error reason, bool by_wish) {
  AssignmentRef abandoned;
  std::vector<EpochRef> forgotten;
  Reservations released;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    end_reason_ = std::move(reason);
    by_wish_ = by_wish;
    abandoned = std::exchange(pending_, nullptr);
    epochs_.move_live_to(forgotten);
    released = std::exchange(reservations_, {});
  }
  ended_.store(true, std::memory_order_release);
  if (abandoned) abandoned->finish(*end_reason_);
  on_end_(*this);
}

}  // namespace terrace::node
