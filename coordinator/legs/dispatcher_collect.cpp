// Dispatcher::collect(): own legs, then whatever comes first of the nodes' answers and the backstop's.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/time.h"
#include "common/base/units.h"
#include "coordinator/legs/dispatcher.h"

namespace terrace::legs {

Status Dispatcher::collect(kernels::SumsView sums, std::span<std::uint8_t> failed) {
  TERRACE_CHECK(n_flights_ > 0, "collect() of nothing");
  Flight& flight = oldest();
  TERRACE_CHECK(sums.d_model == flight.d_model && failed.size() == flight.n_rows,
                "sums of another shape than the rows");
  clear(sums, flight.n_rows);
  Status status = collect_own(flight, sums, failed);
  if (status.ok()) status = submit_held();  // own legs have room again
  if (status.ok()) status = collect_by_range(flight, sums, failed);
  const Status audited = audit(flight, sums, failed);
  end_flight();
  // The verdict is the error to tell: who hears it computes again more than the step.
  if (!audited.ok()) status = audited;
  if (status.ok()) status = submit_held();
  if (!status.ok()) return end_step(status);
  give_backstop_work();
  return {};
}

// What one thread clears of a prompt is longer than all of them need.
void Dispatcher::clear(kernels::SumsView sums, std::uint32_t n_rows) {
  const auto clear_row = [&](std::size_t row, std::size_t) { std::fill_n(sums.row(row), sums.d_model, 0); };
  if (n_rows >= kRowsToShare)
    parallel_.run(n_rows, clear_row);
  else
    std::fill_n(sums.data, n_rows * sums.d_model, 0);
}

Status Dispatcher::audit(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  if (auditor_ == nullptr) return {};
  const Status audited = auditor_->collect(flight.place, sums, failed);
  for (LegWork& work : flight.work) tell_state(flight, work);
  return audited;
}

// Every ticket is collected even after an error, so that no leg keeps what was borrowed.
Status Dispatcher::collect_own(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  Status status;
  for (LegWork& work : flight.work) {
    if (!work.ticket || work.leg->by_range()) continue;
    const Status collected = work.leg->collect(*work.ticket, sums, failed);
    work.ticket.reset();
    if (status.ok()) status = collected;
    tell_state(flight, work);
  }
  return status;
}

bool Dispatcher::Flight::anything_open() const {
  return std::any_of(work.begin(), work.end(), [](const LegWork& leg) { return leg.n_open > 0; });
}

// What came in time is taken before it is judged whether anything is late: `now` is read before the wire is.
Status Dispatcher::collect_by_range(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const StepClock::TimePoint start = clock_.now();
  for (LegWork& work : flight.work) work.wait_from = start;
  while (flight.anything_open()) {
    const StepClock::TimePoint now = clock_.now();
    TERRACE_RETURN_IF_ERROR(poll_legs(flight, sums, failed));
    if (!flight.anything_open()) break;
    judge_limits(flight, now);
    give_backstop_work();
    if (job_flight_ == &flight) {
      TERRACE_ASSIGN_OR_RETURN(const bool moved, advance_job(sums, failed));
      if (moved) continue;
    }
    if (waiting_ == Waiting::kSpinThenPark && now - start < kSpinTime) continue;
    wait(flight, now);
  }
  return {};
}

Status Dispatcher::poll_legs(Flight& flight, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  for (LegWork& work : flight.work) {
    if (!work.leg->by_range()) continue;
    work.leg->progress();
    if (work.ticket) {
      take_ready(flight, work, sums, failed);
      if (work.ticket)
        if (const Status status = work.leg->ticket_status(*work.ticket); !status.ok()) {
          if (backstop_ == nullptr) return status;
          if (work.hedge == Hedge::kFailed) return *work.why;
          orphan(flight, work, status.error());
        }
    }
    tell_state(flight, work);
  }
  return {};
}

void Dispatcher::take_ready(Flight& flight, LegWork& work, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  for (std::size_t range = 0; range < flight.ranges.size(); ++range) {
    if (work.open[range] == 0) continue;
    const RangeState state = work.leg->range_state(*work.ticket, range);
    if (state == RangeState::kOpen) continue;
    if (state == RangeState::kReady) {
      if (!work.leg->take(*work.ticket, range, sums, failed).ok()) return;  // ticket_status() says why
      if (work.hedge == Hedge::kRunning && !work.raced) {
        work.raced = true;
        work.account->extra.false_hedges += 1;
      }
    }
    work.open[range] = 0;
    --work.n_open;
  }
  if (work.n_open == 0) leg_is_through(work);
}

void Dispatcher::leg_is_through(LegWork& work) {
  work.account->extra.wait_us += us_of(clock_.now() - work.wait_from);
  if (work.ticket) {
    work.leg->abandon(*work.ticket);
    work.ticket.reset();
  }
  if (job_ == &work) drop_job();
  work.hedge = Hedge::kNone;
}

void Dispatcher::judge_limits(Flight& flight, StepClock::TimePoint now) {
  for (LegWork& work : flight.work) {
    if (!work.ticket || work.n_open == 0 || work.hedge != Hedge::kNone) continue;
    if (now < work.leg->soft_limit(*work.ticket)) continue;
    if (!work.late) {
      work.late = true;
      work.costs_token = work.leg->state() != LegState::kSuspect;
      work.leg->set_suspect(*work.ticket);
      tell_state(flight, work);
    }
    if (backstop_ != nullptr && may_hedge(work, now)) work.hedge = Hedge::kWanted;
  }
}

// Tokens are for legs that still answer. A leg that was suspect before this batch was late has paid for its silence
// with an older one, and where no token is left a batch waits for twice its limit and no longer: tokens are earned by
// further batches alone, so that it would wait for the node.
bool Dispatcher::may_hedge(const LegWork& work, StepClock::TimePoint now) {
  return !work.costs_token || spend_token() || now >= last_limit(work);
}

StepClock::TimePoint Dispatcher::last_limit(const LegWork& work) {
  const StepClock::TimePoint soft = work.leg->soft_limit(*work.ticket);
  return soft + (soft - work.handed_out);
}

bool Dispatcher::spend_token() {
  if (hedge_tokens_ < 1) return false;
  hedge_tokens_ -= 1;
  return true;
}

// What the backstop is to compute, or does.
bool Dispatcher::wants_backstop(const Flight& flight) {
  return std::any_of(flight.work.begin(), flight.work.end(), [](const LegWork& work) {
    return (work.orphaned && work.n_open > 0) || work.hedge == Hedge::kWanted || work.hedge == Hedge::kRunning;
  });
}

// The younger flight's slabs may be read while nothing of the older one wants them; once it does, they are read again.
void Dispatcher::give_backstop_work() {
  if (backstop_ == nullptr) return;
  for (std::size_t i = 0; i < n_flights_; ++i) {
    Flight& flight = flights_[(oldest_ + i) % flights_.size()];
    if (!wants_backstop(flight)) continue;
    if (job_flight_ != nullptr && job_flight_ != &flight) drop_job();
    if (job_ == nullptr) give_backstop_work(flight);
    if (job_ != nullptr) return;
  }
}

// What nobody else will answer goes before what somebody may.
void Dispatcher::give_backstop_work(Flight& flight) {
  for (LegWork& work : flight.work)
    if (work.orphaned && work.n_open > 0) return begin_job(flight, work);
  for (LegWork& work : flight.work)
    if (work.hedge == Hedge::kWanted) {
      work.hedge = Hedge::kRunning;
      work.account->extra.hedges += 1;
      return begin_job(flight, work);
    }
}

void Dispatcher::begin_job(Flight& flight, LegWork& work) {
  job_pairs_.clear();
  for (const kernels::Pair& pair : work.pairs)
    if (work.open[flight.range_of(pair.row)] != 0) job_pairs_.push_back(pair);
  if (job_pairs_.empty()) {  // what is open are ranges without a pair of this leg
    work.n_open = 0;
    return leg_is_through(work);
  }
  job_sums_.assign(flight.n_rows * flight.d_model, 0);
  job_failed_.assign(flight.n_rows, 0);
  job_ = &work;
  job_flight_ = &flight;
  job_begin_ = clock_.now();
  job_bytes_before_ = backstop_->bytes_read();
  backstop_->begin({flight.layer, flight.gate_rows, flight.up_rows, flight.n_rows, job_pairs_});
}

// Whether anything was computed. An error ends the step: nobody can compute these pairs.
Result<bool> Dispatcher::advance_job(kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const auto between = [this] {
    progress();
    return true;
  };
  const auto advanced = backstop_->advance({job_sums_.data(), sums.d_model, sums.shift}, job_failed_, between);
  if (!advanced.ok()) {
    LegWork& work = *job_;
    job_ = nullptr;
    job_flight_ = nullptr;
    const Error error(advanced.error().code(),
                      fmt::format("{}; its experts cannot be computed here either: {}",
                                  work.why ? work.why->text() : work.leg->name() + ": has not answered in time",
                                  advanced.error().text()));
    if (work.orphaned) return error;
    work.hedge = Hedge::kFailed;  // the leg itself may still answer
    work.why = error;
    return true;
  }
  if (*advanced == Backstop::Progress::kWaiting) return false;
  if (*advanced == Backstop::Progress::kDone) finish_job(sums, failed);
  return true;
}

// The backstop is through: ranges that are still open are closed by its sums.
void Dispatcher::finish_job(kernels::SumsView sums, std::span<std::uint8_t> failed) {
  LegWork& work = *job_;
  const Flight& flight = *job_flight_;
  end_job();
  for (const kernels::Pair& pair : job_pairs_) work.account->extra.hedged_pairs += work.open[flight.range_of(pair.row)];
  for (std::size_t range = 0; range < flight.ranges.size(); ++range) {
    if (work.open[range] == 0) continue;
    const RowRange rows = flight.ranges[range];
    for (std::uint32_t row = rows.first; row < rows.first + rows.count; ++row) {
      const std::int64_t* from = job_sums_.data() + row * sums.d_model;
      std::int64_t* to = sums.row(row);
      for (std::size_t i = 0; i < sums.d_model; ++i)
        to[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(to[i]) + static_cast<std::uint64_t>(from[i]));
      failed[row] |= job_failed_[row];
    }
    work.open[range] = 0;
  }
  work.n_open = 0;
  leg_is_through(work);
}

void Dispatcher::drop_job() {
  if (job_ == nullptr) return;
  end_job();
  backstop_->end();
}

void Dispatcher::end_job() {
  LegCounters& counted = job_->account->extra;
  counted.backstop_us += us_of(clock_.now() - job_begin_);
  counted.backstop_bytes += backstop_->bytes_read() - job_bytes_before_;
  job_ = nullptr;
  job_flight_ = nullptr;
}

void Dispatcher::wait(Flight& flight, StepClock::TimePoint now) {
  StepClock::TimePoint until = now + StepClock::kLongestWait;
  waits_.clear();
  for (const LegWork& work : flight.work) {
    if (work.leg->by_range()) work.leg->add_waits(waits_);
    if (!work.ticket || work.n_open == 0) continue;
    if (!work.late) until = std::min(until, work.leg->soft_limit(*work.ticket));
    if (work.late && work.hedge == Hedge::kNone && backstop_ != nullptr) until = std::min(until, last_limit(work));
  }
  if (job_flight_ == &flight) waits_.push_back({backstop_->wait_fd(), POLLIN, 0});
  clock_.wait(waits_, until);
}

void Dispatcher::progress() {
  for (LegWork& work : flights_[0].work) work.leg->progress();
}

// No leg keeps what was borrowed, and the board knows what this layer counted.
void Dispatcher::end_flight() {
  Flight& flight = oldest();
  if (job_flight_ == &flight) drop_job();
  for (LegWork& work : flight.work) {
    if (work.ticket) {
      work.leg->abandon(*work.ticket);
      work.ticket.reset();
    }
    work.n_open = 0;
    work.held = false;
    tell_counters(work);
  }
  --n_flights_;
  flight.rows = nullptr;
  // One alone has always the same memory.
  oldest_ = n_flights_ == 0 ? 0 : (oldest_ + 1) % flights_.size();
}

Status Dispatcher::abandon() { return end_step({}); }

// What was already handed out is collected and thrown away. A verdict on a node goes before any other error.
Status Dispatcher::end_step(const Status& why) {
  Status told = why;
  while (n_flights_ > 0) {
    Flight& flight = oldest();
    std::vector<std::int64_t> sums(flight.n_rows * flight.d_model);
    std::vector<std::uint8_t> failed(flight.n_rows);
    const kernels::SumsView nowhere{.data = sums.data(), .d_model = flight.d_model};
    (void)collect_own(flight, nowhere, failed);
    const Status audited = audit(flight, nowhere, failed);
    end_flight();
    if (!audited.ok() && (told.ok() || told.error().code() != ErrorCode::kUncertain)) told = audited;
  }
  return told;
}

void Dispatcher::tell_state(const Flight& flight, LegWork& work) {
  const LegState state = work.leg->state();
  if (state == work.account->told) return;
  work.account->told = state;
  std::string reason;
  if (work.leg->why_out() != nullptr)
    reason = work.leg->why_out()->text();
  else if (state == LegState::kSuspect)
    reason = fmt::format("{}: a batch of layer {} is past its soft limit", work.leg->name(), flight.layer);
  work.account->entry->set_state(state, reason);
}

void Dispatcher::tell_counters(LegWork& work) {
  LegCounters all = work.account->before;
  all += work.account->extra;
  all += work.leg->counters();
  work.account->entry->set_counters(all);
}

}  // namespace terrace::legs
