// What time it is for a step, and how it waits for its legs: everything that decides about soft and hard limits asks
// this. A simulation gives one of its own, moves its time by itself and lets its nodes run while a step waits.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>

namespace terrace::legs {

// One owner thread, the step's.
class StepClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // However long nothing comes, legs are looked at so often: they ask a silent node for a sign of life meanwhile.
  static constexpr std::chrono::milliseconds kLongestWait{20};

  virtual ~StepClock() = default;
  virtual TimePoint now() = 0;
  // Blocks until ::poll() would find one of the entries ready, or `until` has come. May return early.
  virtual void wait(std::span<pollfd> entries, TimePoint until) = 0;
};

// The steady clock and ::ppoll(). Without state: any threads may share it.
StepClock& steady_clock();

}  // namespace terrace::legs
