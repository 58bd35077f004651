// A Parallel whose caller looks at something else between its items, as long as that is wanted: while a trunk or the
// host leg computes, batches of nodes are under way, and their bytes want to be moved.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "common/base/parallel.h"
#include "coordinator/legs/step_clock.h"

namespace terrace::legs {

// One owner thread, which calls run().
class PollingParallel final : public Parallel {
 public:
  // At 10 Gbit/s a link carries 125 KB meanwhile: less than a socket holds.
  static constexpr std::chrono::microseconds kEvery{100};

  // `parallel` and `clock` are borrowed. poll: called on the thread that calls run(), between items; it calls no run().
  PollingParallel(Parallel& parallel, std::function<void()> poll, StepClock& clock = steady_clock())
      : parallel_(parallel), poll_(std::move(poll)), clock_(clock) {}

  void start_polling() { polling_ = true; }
  void stop_polling() { polling_ = false; }

  std::size_t n_workers() const override { return parallel_.n_workers(); }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    if (!polling_) return parallel_.run(n_items, fn);
    parallel_.run(n_items, [&](std::size_t item, std::size_t worker) { then_poll(fn, item, worker); });
  }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    if (!polling_) return parallel_.run_in_order(n_items, fn);
    parallel_.run_in_order(n_items, [&](std::size_t item, std::size_t worker) { then_poll(fn, item, worker); });
  }

 private:
  // Worker 0 is who calls run().
  void then_poll(FunctionRef<void(std::size_t, std::size_t)> fn, std::size_t item, std::size_t worker) {
    fn(item, worker);
    if (worker != 0) return;
    const StepClock::TimePoint now = clock_.now();
    if (now - last_ < kEvery) return;
    last_ = now;
    poll_();
  }

  Parallel& parallel_;
  const std::function<void()> poll_;
  StepClock& clock_;
  bool polling_ = false;
  StepClock::TimePoint last_{};
};

}  // namespace terrace::legs
