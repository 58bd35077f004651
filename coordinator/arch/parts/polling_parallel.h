// A Parallel whose caller looks at something else between its items, as long as that is wanted: while a trunk computes,
// batches of its legs are under way, and their bytes want to be moved.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "common/base/parallel.h"

namespace terrace::arch {

// One owner thread, which calls run().
class PollingParallel final : public Parallel {
 public:
  // At 10 Gbit/s a link carries 125 KB meanwhile: less than a socket holds.
  static constexpr std::chrono::microseconds kEvery{100};

  // `parallel` is borrowed. poll: called on the thread that calls run(), between items; it calls no run().
  PollingParallel(Parallel& parallel, std::function<void()> poll) : parallel_(parallel), poll_(std::move(poll)) {}

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
  using Clock = std::chrono::steady_clock;

  // Worker 0 is who calls run().
  void then_poll(FunctionRef<void(std::size_t, std::size_t)> fn, std::size_t item, std::size_t worker) {
    fn(item, worker);
    if (worker != 0) return;
    const Clock::time_point now = Clock::now();
    if (now - last_ < kEvery) return;
    last_ = now;
    poll_();
  }

  Parallel& parallel_;
  const std::function<void()> poll_;
  bool polling_ = false;
  Clock::time_point last_{};
};

}  // namespace terrace::arch
