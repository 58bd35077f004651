#include "coordinator/legs/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/units.h"
#include "coordinator/legs/out_leg.h"

namespace terrace::legs {
namespace {

constexpr auto kNever = Runtime::TimePoint::max();

bool is_answered(const Status& call) {
  return call.ok() || (call.error().code() != ErrorCode::kPeerGone && call.error().code() != ErrorCode::kDeadline);
}

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::start(const Epoch& first, std::vector<Seat> seats, LegBoard& board,
                                                      SupervisorHooks hooks, const RetryPauses& pauses,
                                                      std::chrono::milliseconds look, Runtime& runtime) {
  std::unique_ptr<Supervisor> made(
      new Supervisor(first, std::move(seats), board, std::move(hooks), pauses, look, runtime));
  TERRACE_RETURN_IF_ERROR(made->start_threads());
  return made;
}

Supervisor::Supervisor(const Epoch& first, std::vector<Seat> seats, LegBoard& board, SupervisorHooks hooks,
                       const RetryPauses& pauses, std::chrono::milliseconds look, Runtime& runtime)
    : board_(board),
      hooks_(std::move(hooks)),
      look_(look),
      runtime_(runtime),
      schedule_(seats.size(), pauses),
      last_number_(first.owners.epoch()) {
  TERRACE_CHECK(seats.size() == first.legs.size(), "seats of other legs than the epoch's");
  for (std::size_t i = 0; i < seats.size(); ++i) {
    Place& place = places_.emplace_back();
    place.entry = &board_.entry(seats[i].name, seats[i].kind);
    place.seat = std::move(seats[i]);
    place.in_since = last_number_;
    place.acknowledged = first.acknowledged[i];
    place.numbers = {place.acknowledged};
    if (place.seat.lost_before) begin_without(i);
  }
  live_.push_back({&first, last_number_, first.acknowledged});
  near_.assign(places_.size(), 0);
}

Status Supervisor::start_threads() {
  TERRACE_ASSIGN_OR_RETURN(watcher_, runtime_.start("terrace-watcher", [this] { watch(); }));
  TERRACE_ASSIGN_OR_RETURN(worker_, runtime_.start("terrace-nodes", [this] { work(); }));
  return {};
}

void Supervisor::begin_without(std::size_t leg) {
  Place& place = places_[leg];
  place.out = true;
  may_bequeath_ = true;
  place.out_since = runtime_.now();
  place.entry->set_state(LegState::kLost, place.seat.leg->why_out()->text());
  place.entry->add(&LegCounters::losses, 1);
  schedule_.lost(leg, place.out_since);
  hooks_.tell(fmt::format("{}; its experts are computed here until it is back", place.seat.leg->why_out()->text()));
}

Supervisor::~Supervisor() { stop(); }

void Supervisor::stop() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_.request_stop();
    for (const Place& place : places_)
      if (place.seat.member) place.seat.member->abandon();
    stop_bequests();
  }
  runtime_.notify(changed_);
  board_.wake();
  runtime_.join(watcher_);
  if (worker_.joinable()) runtime_.join(worker_);
}

std::vector<std::uint8_t> Supervisor::gone() const {
  std::vector<std::uint8_t> gone;
  for (const Place& place : places_) gone.push_back(place.out ? 1 : 0);
  return gone;
}

bool Supervisor::holds(std::size_t leg, std::uint32_t layer, std::uint16_t expert) const {
  const std::optional<OwnerTable>& further = places_[leg].further;
  return further && further->owners(layer)[expert] == leg;
}

OwnerTable Supervisor::replan(std::span<const std::uint8_t> gone, std::uint64_t epoch) const {
  return hooks_.replan(gone, epoch, std::bind_front(&Supervisor::holds, this));
}

// ---- the watcher --------------------------------------------------------------------------------------------------

void Supervisor::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_.stop_requested()) {
    const std::uint64_t seen = board_.changes();
    look_for_losses();
    if (suspects() != near_) bring_near();
    take_retired();
    lock.unlock();
    runtime_.wait_for_change(board_, seen, look_);
    lock.lock();
  }
}

// A step that still has an older epoch tells of the session before this one.
bool Supervisor::is_judged_by_board(const Place& place) const {
  return live_.empty() || live_.front().number >= place.in_since;
}

void Supervisor::look_for_losses() {
  for (std::size_t i = 1; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.out) {  // what an audit finds in answers from before it was lost
      if (place.entry->state() == LegState::kWrong) schedule_.give_up(i);
      continue;
    }
    const bool lease_lost = place.seat.member && place.seat.member->lease_lost();
    if (lease_lost && !is_out(place.entry->state())) {  // no batch is sent there, so that its leg does not know
      place.entry->set_state(
          LegState::kLost,
          fmt::format("{}: the node is lost (it does not hold our session any more)", place.seat.name));
      place.entry->add(&LegCounters::losses, 1);
    }
    const LegState state = place.entry->state();
    if (is_out(state) && (lease_lost || is_judged_by_board(place))) take_out(i, state);
  }
}

void Supervisor::take_out(std::size_t leg, LegState state) {
  Place& place = places_[leg];
  const std::uint64_t experts = place.entry->report().experts;
  place.out = true;
  place.further.reset();
  place.has_surplus = false;
  may_bequeath_ = true;
  place.out_since = runtime_.now();
  if (place.seat.member) place.seat.member->abandon();
  for (Bequest& bequest : bequests_)
    if (bequest.share.leg == leg) bequest.stop.request_stop();
  const std::string why = place.entry->report().reason;
  lost_.push_back({std::exchange(place.seat.member, nullptr), std::move(place.seat.leg)});
  place.seat.leg = make_out_leg(place.seat.name, place.seat.kind, state, why);
  publish();
  const bool comes_back = state == LegState::kLost && place.seat.kind == LegKind::kNode;
  if (comes_back) schedule_.lost(leg, place.out_since);
  hooks_.tell(fmt::format("{}; its {} experts are computed here{}", why, experts,
                          comes_back ? " until it is back" : ", and it stays out until the next start"));
  runtime_.notify(changed_);
}

void Supervisor::publish() {
  const OwnerTable owners = replan(gone(), ++last_number_);
  places_[0].seat.leg = hooks_.host(owners);
  Epoch next{owners, {}, {}};
  for (std::size_t i = 0; i < places_.size(); ++i) {
    next.legs.push_back(places_[i].seat.leg);
    next.acknowledged.push_back(places_[i].acknowledged);
    places_[i].entry->set_experts(owners.n_slabs(i));
  }
  const auto published = std::make_shared<const Epoch>(std::move(next));
  live_.push_back({published.get(), last_number_, published->acknowledged});
  hooks_.publish(published);
  bring_near();
}

// Of those that are in, where the board speaks of the session that they have.
std::vector<std::uint8_t> Supervisor::suspects() const {
  std::vector<std::uint8_t> suspects(places_.size(), 0);
  for (std::size_t i = 1; i < places_.size(); ++i) {
    const Place& place = places_[i];
    suspects[i] = !place.out && is_judged_by_board(place) && place.entry->state() == LegState::kSuspect ? 1 : 0;
  }
  return suspects;
}

void Supervisor::bring_near() {
  near_ = suspects();
  if (!hooks_.bring_near) return;
  std::vector<std::uint8_t> out = gone();
  const OwnerTable owners = replan(out, last_number_);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] |= near_[i];
  hooks_.bring_near(owners, replan(out, last_number_));
}

void Supervisor::take_retired() {
  for (EpochRef& epoch : hooks_.take_retired()) {
    std::erase_if(live_, [&](const LiveEpoch& live) { return live.epoch == epoch.get(); });
    retired_.push_back(std::move(epoch));
    runtime_.notify(changed_);
  }
}

// ---- the worker ---------------------------------------------------------------------------------------------------

void Supervisor::work() {
  std::unique_lock lock(mutex_);
  while (!stop_.stop_requested()) {
    // One for whether something is due and for how long to wait: what came due between two would be waited for no more.
    const TimePoint now = runtime_.now();
    if (let_go(lock) || forget_one(lock, now) || finish_attempt(lock) || finish_bequest(lock) ||
        take_surplus(lock, now) || give_back(lock, now) || begin_bequests())
      continue;
    if (const auto leg = schedule_.due(now)) {
      begin_attempt(*leg);
      continue;
    }
    runtime_.wait(changed_, lock, std::min(schedule_.next().value_or(kNever), next_ask(now).value_or(kNever)));
  }
  lock.unlock();
  for (Attempt& attempt : attempts_) runtime_.join(attempt.thread);
  for (Bequest& bequest : bequests_) runtime_.join(bequest.thread);
}

bool Supervisor::let_go(std::unique_lock<std::mutex>& lock) {
  if (retired_.empty() && lost_.empty()) return false;
  auto retired = std::exchange(retired_, {});
  auto lost = std::exchange(lost_, {});
  lock.unlock();
  lost.clear();
  retired.clear();
  lock.lock();
  return true;
}

// No step can name the first of its numbers any more.
bool Supervisor::may_forget_one(std::size_t leg) const {
  const Place& place = places_[leg];
  if (!place.seat.member || place.numbers.size() < 2) return false;
  return std::ranges::none_of(live_,
                              [&](const LiveEpoch& live) { return live.acknowledged[leg] == place.numbers.front(); });
}

// Of one node one number. A node that does not answer is lost, or is told again.
bool Supervisor::forget_one(std::unique_lock<std::mutex>& lock, TimePoint now) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!may_forget_one(i) || now < places_[i].tell.until) continue;
    const std::uint64_t number = places_[i].numbers.front();
    const std::shared_ptr<Member> member = places_[i].seat.member;
    lock.unlock();
    const Status told = member->forget(number);
    lock.lock();
    Place& place = places_[i];
    if (place.seat.member != member) return true;
    if (is_answered(told)) {
      place.numbers.erase(place.numbers.begin());
      place.tell = {};
    } else {
      put_off(place.tell, told);
    }
    return true;
  }
  return false;
}

// `answer` was no success.
void Supervisor::put_off(Pause& pause, const Status& answer) const {
  if (is_answered(answer)) pause.next = kAskAgain;
  pause.until = runtime_.now() + pause.next;
  if (!is_answered(answer)) pause.next = std::min(2 * pause.next, kTellAgainAtLast);
}

// The node's share is the same whoever else is out meanwhile: what is lost goes to the host (SupervisorHooks::replan).
void Supervisor::begin_attempt(std::size_t leg) {
  std::vector<std::uint8_t> others_gone = gone();
  others_gone[leg] = 0;
  schedule_.trying(leg);
  Attempt& attempt = attempts_.emplace_back(leg, replan(others_gone, ++last_number_));
  auto started = runtime_.start("terrace-open", [this, &attempt] { open(attempt); });
  if (started.ok()) {
    attempt.thread = std::move(*started);
    return;
  }
  attempts_.pop_back();  // later, perhaps
  refuse(leg, started.error().in(places_[leg].seat.name), false);
}

// By a thread of the attempt's own.
void Supervisor::open(Attempt& attempt) {
  bool wrong = false;
  auto opened = hooks_.open(attempt.leg, attempt.owners, stop_.get_token(), wrong);
  {
    const std::lock_guard lock(mutex_);
    attempt.wrong = wrong;
    attempt.opened.emplace(std::move(opened));
  }
  runtime_.notify(changed_);
}

bool Supervisor::finish_attempt(std::unique_lock<std::mutex>& lock) {
  const auto ended = std::ranges::find_if(attempts_, [](const Attempt& attempt) { return attempt.opened.has_value(); });
  if (ended == attempts_.end()) return false;
  Attempt attempt = std::move(*ended);
  attempts_.erase(ended);
  lock.unlock();
  runtime_.join(attempt.thread);
  lock.lock();
  Result<OpenedMember>& opened = *attempt.opened;
  if (!opened.ok()) {
    refuse(attempt.leg, opened.error(), attempt.wrong);
    return true;
  }
  ask_others(attempt.leg, attempt.owners, lock);
  // An audit of what it answered before it was lost may have found it wrong meanwhile.
  if (stop_.stop_requested() || places_[attempt.leg].entry->state() == LegState::kWrong)
    lost_.push_back(std::move(*opened));
  else
    take_in(attempt.leg, std::move(*opened), attempt.owners.epoch());
  return true;
}

bool Supervisor::is_silent(const Place& place, TimePoint now) {
  const auto waits = [now](const Pause& pause) { return pause.next > kAskAgain && now < pause.until; };
  return waits(place.tell) || waits(place.ask);
}

// Those that do not answer go on with the number that they know.
void Supervisor::ask_others(std::size_t leg, const OwnerTable& owners, std::unique_lock<std::mutex>& lock) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::shared_ptr<Member> member = places_[i].seat.member;
    if (i == leg || !member || owners.n_slabs(i) == 0) continue;
    // It did not answer of late: the one that is back does not wait for its deadline again.
    if (is_silent(places_[i], runtime_.now())) continue;
    // Its share is changing, or is another one than the plan's: it goes on with the number that it knows until then.
    if (places_[i].inheriting || places_[i].further) continue;
    // Since the attempt began it has given up what it had inherited.
    if (owners.n_slabs(i) != replan(gone(), last_number_).n_slabs(i)) continue;
    lock.unlock();
    const Status knows = member->acknowledge(owners, i);
    lock.lock();
    if (places_[i].seat.member != member) continue;
    note_number(i, owners.epoch(), knows);
    if (!is_answered(knows)) put_off(places_[i].tell, knows);
  }
}

// What an acknowledgement, or a further share, of the node's has led to.
void Supervisor::note_number(std::size_t leg, std::uint64_t number, const Status& knows) {
  Place& place = places_[leg];
  if (!knows.ok()) {
    place.numbers.insert(place.numbers.begin(), number);  // it may have it all the same
    return;
  }
  place.acknowledged = number;
  place.numbers.push_back(number);
}

void Supervisor::take_in(std::size_t leg, OpenedMember opened, std::uint64_t number) {
  Place& place = places_[leg];
  const std::uint64_t bytes = opened.leg->counters().weight_bytes_sent;
  place.seat.member = std::move(opened.member);
  place.seat.leg = std::move(opened.leg);
  place.out = false;
  place.acknowledged = number;
  place.numbers = {number};
  place.tell = {};
  place.ask = {};
  place.told_refusal.clear();
  place.in_since = last_number_ + 1;
  may_bequeath_ = true;
  stop_bequests();
  publish();
  place.entry->set_state(LegState::kOk, "");
  place.entry->add(&LegCounters::rejoins, 1);
  schedule_.back(leg, runtime_.now());
  hooks_.tell(fmt::format(
      "{}: back after {}, {} slabs, {} sent", place.seat.name,
      format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(runtime_.now() - place.out_since)),
      place.entry->report().experts, format_size(bytes)));
}

void Supervisor::refuse(std::size_t leg, const Error& why, bool wrong) {
  Place& place = places_[leg];
  if (!wrong) {
    if (place.entry->state() == LegState::kWrong) return;  // by an audit, meanwhile: it is tried no more
    schedule_.failed(leg, runtime_.now());
    const bool answers = why.code() != ErrorCode::kPeerGone && why.code() != ErrorCode::kDeadline;
    if (answers && std::exchange(place.told_refusal, why.text()) != why.text())
      hooks_.tell(fmt::format("{}; it is tried again", why.text()));
    return;
  }
  schedule_.give_up(leg);
  place.entry->set_state(LegState::kWrong, why.text());
  place.entry->add(&LegCounters::wrongs, 1);
  hooks_.tell(fmt::format("{}; it stays out until the next start", why.text()));
}

}  // namespace terrace::legs
