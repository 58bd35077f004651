// How long a node may take for a batch before others begin to compute it: learned from its answers, never a constant
// (docs/architecture.md, failure).
//
//   planned = pairs * measured cost + round trip
//   soft    = max(4 * planned, 1.5 * the worst of the last 1,000, planned + 5 ms)
//   hard    = max(20 * soft, 2 s), of silence
//
// Work is counted in pairs, since one row may use one expert of a leg or eight. What a pair costs falls with the size
// of a batch (its experts' weights are read once), so costs are kept by powers of two.
//
// Threads  One owner. Nothing allocates.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "coordinator/legs/leg.h"
#include "coordinator/legs/step_clock.h"

namespace terrace::legs {

class SoftLimits {
 public:
  using Duration = StepClock::Duration;
  static constexpr std::size_t kRemembered = 1000;
  static constexpr Duration kLeastSlack = std::chrono::milliseconds(5);
  static constexpr Duration kLeastHard = std::chrono::seconds(2);

  // unmeasured: the soft limit as long as no batch was answered.
  explicit SoftLimits(Duration unmeasured) : unmeasured_(unmeasured) {}

  // A batch of `pairs` was answered whole `total` after it was submitted; `computing` of that, as the node says, which
  // only moves limits. A late one tells what work costs, though no more than twice what was planned (or
  // half of kLeastSlack beyond it), and is no measure of what is usual.
  void answered(Priority priority, std::size_t pairs, Duration total, Duration computing, bool late);

  // What was usual so far is so no longer; costs are kept. (A canary reads weights for the first time.)
  void forget_worst();

  bool measured() const { return samples_ > 0; }
  // Of a batch of so many pairs. Zero while nothing is measured.
  Duration planned(std::size_t pairs) const;
  Duration soft(Priority priority, std::size_t pairs) const;
  static Duration hard(Duration soft);

 private:
  Duration most_of_late(std::size_t pairs) const;

  static constexpr std::size_t kSizes = 20;  // 2^19 pairs and more are one

  // The largest of the last kRemembered values.
  class Worst {
   public:
    void add(Duration value);
    void forget() { next_ = n_ = 0, worst_ = Duration(0), values_ = {}; }
    Duration value() const { return worst_; }

   private:
    std::array<Duration, kRemembered> values_{};
    std::size_t next_ = 0, n_ = 0;
    Duration worst_{0};
  };

  const Duration unmeasured_;
  std::uint64_t samples_ = 0;
  double round_trip_ns_ = 0;
  std::array<double, kSizes> ns_a_pair_{};  // by the power of two of a batch's pairs; 0: not measured
  Worst worst_[2];                          // by priority
};

}  // namespace terrace::legs
