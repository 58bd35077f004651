// The process's pool of compute threads.
//
// run() hands items out one by one from a counter, so that a slow core takes fewer of them. Threads wait for the next
// run by spinning briefly and then sleep; where the process has one CPU, or fewer CPUs than workers, nobody spins,
// because the spinner would hold the core that the work needs. A thread that has not woken by the time the items are
// gone is not waited for: a run of a few small items costs no context switch.
// A run allocates nothing.
// Threads  one run() at a time, from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"

namespace terrace {

struct PoolOptions {
  std::size_t n_workers = 1;  // the caller of run() among them, so n_workers - 1 threads are started; 1 to 4096
  enum class Waiting { kAuto, kSpinThenSleep, kSleep } waiting = Waiting::kAuto;
};

class Pool final : public Parallel {
 public:
  // kInvalidArgument: n_workers out of range; kOutOfMemory: the system starts no more threads.
  static Result<std::unique_ptr<Pool>> create(const PoolOptions& options);
  ~Pool() override;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::size_t n_workers() const override { return threads_.size() + 1; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t item, std::size_t worker)> fn) override;
  // The counter only rises, so any run() is in order.
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t item, std::size_t worker)> fn) override {
    run(n_items, fn);
  }

 private:
  using Work = FunctionRef<void(std::size_t, std::size_t)>;

  explicit Pool(bool spins) : spins_(spins) {}
  void start_threads(std::size_t n_threads);
  void thread_main(std::size_t worker);
  bool join_run();
  void work(std::size_t worker);
  void wait_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t value) const;

  static constexpr std::size_t kLine = 64;          // one cache line, so that counters do not slow each other down
  static constexpr std::uint32_t kOpen = 1u << 31;  // in run_state_: threads may still join

  const bool spins_;
  std::vector<std::thread> threads_;

  // The run in progress; written by run() before it opens run_state_, read only by those who joined.
  const Work* work_ = nullptr;
  std::size_t n_items_ = 0;

  alignas(kLine) std::atomic<std::size_t> next_item_ = 0;
  alignas(kLine) std::atomic<std::uint32_t> run_number_ = 0;  // what sleeping threads watch
  alignas(kLine) std::atomic<std::uint32_t> run_state_ = 0;   // kOpen and how many threads have joined
  alignas(kLine) std::atomic<std::uint32_t> n_left_ = 0;      // how many of those are through; the caller watches it
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> running_ = false;
};

}  // namespace terrace
