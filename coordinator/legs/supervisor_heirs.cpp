// The part of the supervisor's worker that has nodes take over what others lost, and give it up again.
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "common/base/units.h"
#include "coordinator/legs/supervisor.h"

namespace terrace::legs {
namespace {

bool has_more(const OwnerTable& now, const OwnerTable& before, std::size_t leg) {
  for (std::uint32_t layer = 0; layer < now.n_layers(); ++layer)
    for (std::uint32_t expert = 0; expert < now.n_experts(); ++expert)
      if (now.owners(layer)[expert] == leg && before.owners(layer)[expert] != leg) return true;
  return false;
}

}  // namespace

// ---- lost experts to nodes that have room --------------------------------------------------------------------------

// One further share at a time, and nothing older there: a node lets two epochs live that brought slabs.
bool Supervisor::may_inherit(std::size_t leg) const {
  const Place& place = places_[leg];
  return place.seat.member && !place.out && !place.inheriting && !place.has_surplus && place.numbers.size() == 1;
}

bool Supervisor::begin_bequests() {
  if (!may_bequeath_ || !hooks_.bequeath || !bequests_.empty()) return false;
  const OwnerTable now = replan(gone(), last_number_);
  const OwnerTable then = hooks_.bequeath(gone(), last_number_ + 1, std::bind_front(&Supervisor::holds, this));
  std::vector<std::size_t> heirs;
  for (std::size_t i = 1; i < places_.size(); ++i)
    if (has_more(then, now, i)) heirs.push_back(i);
  if (!std::ranges::all_of(heirs, [this](std::size_t leg) { return may_inherit(leg); })) return false;
  may_bequeath_ = false;
  if (heirs.empty()) return false;
  last_number_ = then.epoch();
  for (const std::size_t leg : heirs) begin_bequest({leg, places_[leg].seat.member, now, then});
  return true;
}

void Supervisor::begin_bequest(FurtherShare share) {
  const std::size_t leg = share.leg;
  Bequest& bequest = bequests_.emplace_back(std::move(share), runtime_.now());
  auto started = runtime_.start("terrace-share", [this, &bequest] { bequeath(bequest); });
  if (!started.ok()) return bequests_.pop_back();  // it is the host's on
  bequest.thread = std::move(*started);
  places_[leg].inheriting = true;
}

void Supervisor::bequeath(Bequest& bequest) {
  std::uint64_t sent = 0;
  bool wrong = false;
  Status taken;
  try {
    taken = hooks_.take_further(bequest.share, bequest.stop.get_token(), sent, wrong);
  } catch (const std::exception& thrown) {  // no memory: out of a thread's function it would end us
    taken = Error(ErrorCode::kOutOfMemory, fmt::format("{}: {}", places_[bequest.share.leg].seat.name, thrown.what()));
  }
  {
    const std::lock_guard lock(mutex_);
    bequest.bytes_sent = sent;
    bequest.wrong = wrong;
    bequest.taken.emplace(std::move(taken));
  }
  runtime_.notify(changed_);
}

void Supervisor::stop_bequests() {
  for (Bequest& bequest : bequests_) bequest.stop.request_stop();
}

bool Supervisor::finish_bequest(std::unique_lock<std::mutex>& lock) {
  const auto ended = std::ranges::find_if(bequests_, [](const Bequest& bequest) { return bequest.taken.has_value(); });
  if (ended == bequests_.end()) return false;
  Bequest bequest = std::move(*ended);
  bequests_.erase(ended);
  lock.unlock();
  runtime_.join(bequest.thread);
  lock.lock();
  Place& place = places_[bequest.share.leg];
  place.inheriting = false;
  place.entry->add(&LegCounters::weight_bytes_sent, bequest.bytes_sent);
  const bool lost_meanwhile = place.seat.member != bequest.share.member;
  if (!stop_.stop_requested() && !lost_meanwhile) {
    note_number(bequest.share.leg, bequest.share.owners.epoch(), *bequest.taken);
    if (bequest.taken->ok())
      own_further(bequest);
    else
      keep_with_host(bequest);
  }
  // Perhaps the last to hold the session, whose end takes a call to the node.
  lock.unlock();
  bequest.share.member.reset();
  lock.lock();
  return true;
}

void Supervisor::own_further(Bequest& bequest) {
  Place& place = places_[bequest.share.leg];
  const std::uint64_t more =
      bequest.share.owners.n_slabs(bequest.share.leg) - bequest.share.before.n_slabs(bequest.share.leg);
  place.further = std::move(bequest.share.owners);
  place.told_inheritance.clear();
  publish();
  hooks_.tell(fmt::format(
      "{}: has taken over {} experts of lost nodes in {}, {} sent", place.seat.name, more,
      format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(runtime_.now() - bequest.begun)),
      format_size(bequest.bytes_sent)));
}

void Supervisor::keep_with_host(Bequest& bequest) {
  Place& place = places_[bequest.share.leg];
  place.has_surplus = true;
  place.ask = {};
  const Error& why = bequest.taken->error();
  // Here and not by the watcher: its leg was tried beside the steps', so the next step would set it right on the board.
  if (bequest.wrong) {
    place.entry->set_state(LegState::kWrong, why.text());
    place.entry->add(&LegCounters::wrongs, 1);
    return take_out(bequest.share.leg, LegState::kWrong);
  }
  if (bequest.stop.stop_requested()) return;  // by ourselves
  if (std::exchange(place.told_inheritance, why.text()) != why.text())
    hooks_.tell(fmt::format("{}; it takes over no lost node's experts, they stay here", why.text()));
}

// ---- and back ------------------------------------------------------------------------------------------------------

// Of one node that holds what is another's again: an epoch without that.
bool Supervisor::take_surplus(std::unique_lock<std::mutex>& lock, TimePoint now) {
  for (std::size_t i = 1; i < places_.size(); ++i) {
    if (!places_[i].further || places_[i].inheriting || now < places_[i].ask.until) continue;
    if (places_[i].further->n_slabs(i) == replan(gone(), last_number_).n_slabs(i)) continue;
    const OwnerTable owners = replan(gone(), ++last_number_);
    const std::shared_ptr<Member> member = places_[i].seat.member;
    lock.unlock();
    const Status knows = member->acknowledge(owners, i);
    lock.lock();
    Place& place = places_[i];
    if (place.seat.member != member) return true;
    note_number(i, owners.epoch(), knows);
    if (!knows.ok()) {
      put_off(place.ask, knows);
      return true;
    }
    place.ask = {};
    const std::vector<std::uint8_t> nobody(places_.size(), 0);
    const bool as_planned = owners.n_slabs(i) == replan(nobody, last_number_).n_slabs(i);
    place.further = as_planned ? std::nullopt : std::optional(owners);
    place.has_surplus = true;
    publish();
    return true;
  }
  return false;
}

// The memory of one node, once it has forgotten what lay there.
bool Supervisor::give_back(std::unique_lock<std::mutex>& lock, TimePoint now) {
  for (std::size_t i = 1; i < places_.size(); ++i) {
    if (!places_[i].has_surplus || places_[i].inheriting || places_[i].numbers.size() != 1 ||
        now < places_[i].ask.until)
      continue;
    const OwnerTable owners = places_[i].further ? *places_[i].further : replan(gone(), last_number_);
    const std::shared_ptr<Member> member = places_[i].seat.member;
    if (!member) continue;
    lock.unlock();
    const Status given = member->give_back(owners, i);
    lock.lock();
    Place& place = places_[i];
    if (place.seat.member != member) return true;
    const bool never =
        !given.ok() && (given.error().code() == ErrorCode::kRefused || given.error().code() == ErrorCode::kNotFound);
    place.has_surplus = !given.ok() && !never;
    if (place.has_surplus)
      put_off(place.ask, given);
    else
      place.ask = {};
    return true;
  }
  return false;
}

std::optional<Supervisor::TimePoint> Supervisor::next_ask(TimePoint now) const {
  std::optional<TimePoint> next;
  for (std::size_t i = 1; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const bool waits = place.further || (place.has_surplus && place.numbers.size() == 1);
    if (waits && !place.inheriting && place.ask.until > now)
      next = std::min(next.value_or(place.ask.until), place.ask.until);
    if (may_forget_one(i)) next = std::min(next.value_or(place.tell.until), place.tell.until);
  }
  return next;
}

}  // namespace terrace::legs
