#include "coordinator/legs/soft_limit.h"

#include <algorithm>
#include <bit>

namespace terrace::legs {
namespace {

// Of a new measurement in a running mean: a change of the link or of the node's load shows within a few batches.
constexpr double kNewWeight = 1.0 / 8;

void mix(double& mean, double value) { mean = mean == 0 ? value : mean + kNewWeight * (value - mean); }

double ns(StepClock::Duration duration) { return static_cast<double>(std::chrono::nanoseconds(duration).count()); }

}  // namespace

void SoftLimits::Worst::add(Duration value) {
  const Duration gone = values_[next_];
  values_[next_] = value;
  next_ = (next_ + 1) % kRemembered;
  n_ = std::min(n_ + 1, kRemembered);
  if (value >= worst_)
    worst_ = value;
  else if (gone == worst_)
    worst_ = *std::max_element(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(n_));
}

// A stall is not what work costs: the batches under way in one, four at most, leave limits below twice as long. That a
// node has become slower is learned all the same, from each late batch more.
SoftLimits::Duration SoftLimits::most_of_late(std::size_t pairs) const {
  const Duration plan = planned(pairs);
  return plan + std::max(plan, kLeastSlack / 2);
}

void SoftLimits::answered(Priority priority, std::size_t pairs, Duration total, Duration computing, bool late) {
  if (late && measured()) total = std::min(total, most_of_late(pairs));
  total = std::max(total, Duration(1));
  const double elsewhere = ns(total - std::clamp(computing, Duration(0), total));
  // A prompt's rows take their time on the link too: that is part of what a pair costs, not of the round trip.
  if (priority == Priority::kDecode && !late) mix(round_trip_ns_, elsewhere);
  if (samples_++ == 0 && round_trip_ns_ == 0) round_trip_ns_ = elsewhere;
  const std::size_t size = std::min<std::size_t>(std::bit_width(pairs | 1) - 1, kSizes - 1);
  mix(ns_a_pair_[size],
      std::max(ns(total) - round_trip_ns_, 1.0) / static_cast<double>(std::max<std::size_t>(pairs, 1)));
  if (!late) worst_[static_cast<std::size_t>(priority)].add(total);
}

void SoftLimits::forget_worst() {
  for (Worst& worst : worst_) worst.forget();
}

// A size that was not measured costs what the next smaller one does: a pair of it costs no less.
SoftLimits::Duration SoftLimits::planned(std::size_t pairs) const {
  if (!measured()) return Duration(0);
  const std::size_t size = std::min<std::size_t>(std::bit_width(pairs | 1) - 1, kSizes - 1);
  double cost = 0;
  for (std::size_t i = 0; i <= size; ++i)
    if (ns_a_pair_[i] > 0) cost = ns_a_pair_[i];
  for (std::size_t i = size; cost == 0 && i < kSizes; ++i) cost = ns_a_pair_[i];
  return std::chrono::duration_cast<Duration>(
      std::chrono::nanoseconds(static_cast<std::int64_t>(round_trip_ns_ + cost * static_cast<double>(pairs))));
}

SoftLimits::Duration SoftLimits::soft(Priority priority, std::size_t pairs) const {
  if (!measured()) return unmeasured_;
  const Duration plan = planned(pairs);
  return std::max({4 * plan, worst_[static_cast<std::size_t>(priority)].value() * 3 / 2, plan + kLeastSlack});
}

SoftLimits::Duration SoftLimits::hard(Duration soft) { return std::max(20 * soft, kLeastHard); }

}  // namespace terrace::legs
