// Whether a thread that answers requests looks for the next one instead of sleeping. Being woken costs both ends: some
// 5 to 10 us until it runs, and whoever sends has to wake it. Where a trunk is fast, as a card's is, the next layer's
// batch comes sooner than a spin is long.
//
// It looks for kSpinTime after an answer, once kSoonInARow requests came within that time of the answers before them.
// One that comes later has cost a single look, and the thread sleeps until as many come soon again: whoever asks may
// need the core that it looks from.
//
// Threads  One owner.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/threads/waiting.h"

namespace terrace::node {

class Wakefulness {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr int kSoonInARow = 8;

  // kBlock: it never looks.
  explicit Wakefulness(Waiting waiting) : looks_(waiting == Waiting::kSpinThenPark) {}

  // A request has come.
  void asked(TimePoint now) { soon_ = now - answered_ < kSpinTime ? std::min(soon_ + 1, kSoonInARow) : 0; }
  void answered(TimePoint now) { answered_ = now; }
  bool awake(TimePoint now) const { return looks_ && soon_ == kSoonInARow && now - answered_ < kSpinTime; }

 private:
  const bool looks_;
  int soon_ = 0;  // requests in a row, counted no further than it matters
  TimePoint answered_{};
};

}  // namespace terrace::node
