#include "coordinator/legs/leg.h"

#include <algorithm>

#include "common/base/check.h"

namespace terrace::legs {
namespace {

constexpr LegCounter kCounters[] = {
    &LegCounters::batches,        &LegCounters::rows,           &LegCounters::pairs,
    &LegCounters::bytes_sent,     &LegCounters::bytes_received, &LegCounters::weight_bytes_sent,
    &LegCounters::wait_us,        &LegCounters::compute_us,     &LegCounters::round_trip_us,
    &LegCounters::hedges,         &LegCounters::false_hedges,   &LegCounters::hedged_pairs,
    &LegCounters::backstop_bytes, &LegCounters::backstop_us,    &LegCounters::skipped,
    &LegCounters::late,           &LegCounters::refused,        &LegCounters::audited_pairs,
    &LegCounters::losses,         &LegCounters::wrongs,         &LegCounters::rejoins,
};
static_assert(sizeof(LegCounters) == kLegCounters * sizeof(std::uint64_t) && std::size(kCounters) == kLegCounters,
              "a counter is missing in the list");

}  // namespace

std::span<const LegCounter, kLegCounters> all_counters() { return kCounters; }

LegCounters& LegCounters::operator+=(const LegCounters& other) {
  for (const LegCounter counter : kCounters) this->*counter += other.*counter;
  return *this;
}

LegCounters LegCounters::operator-(const LegCounters& before) const {
  LegCounters since = *this;
  for (const LegCounter counter : kCounters) since.*counter -= before.*counter;
  return since;
}

const char* name(LegKind kind) {
  switch (kind) {
    case LegKind::kHost:
      return "host";
    case LegKind::kCard:
      return "card";
    case LegKind::kNode:
      return "node";
  }
  return "unknown";
}

const char* name(LegState state) {
  switch (state) {
    case LegState::kOk:
      return "ok";
    case LegState::kSuspect:
      return "suspect";
    case LegState::kLost:
      return "lost";
    case LegState::kWrong:
      return "wrong";
  }
  return "unknown";
}

namespace {
constexpr const char* kNotByRange = "a leg that is not asked range by range";
}  // namespace

RangeState Leg::range_state(Ticket, std::size_t) const {
  TERRACE_CHECK(by_range(), kNotByRange);
  return RangeState::kOpen;
}

Status Leg::take(Ticket, std::size_t, kernels::SumsView, std::span<std::uint8_t>) {
  TERRACE_CHECK(by_range(), kNotByRange);
  return {};
}

void Leg::take_slots(Ticket, std::span<float>, std::span<std::uint8_t>) { TERRACE_CHECK(false, kNotByRange); }

Status Leg::ticket_status(Ticket) const {
  TERRACE_CHECK(by_range(), kNotByRange);
  return {};
}

StepClock::TimePoint Leg::soft_limit(Ticket) const { return StepClock::TimePoint::max(); }
void Leg::set_suspect(Ticket) {}
void Leg::abandon(Ticket) { TERRACE_CHECK(by_range(), kNotByRange); }
void Leg::add_waits(std::vector<pollfd>&) {}

}  // namespace terrace::legs
