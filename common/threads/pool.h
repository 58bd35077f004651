// The process's pool of compute threads.
//
// run() hands items out one by one from a counter, so that a slow core takes fewer of them. Threads wait for the next
// run as PoolOptions::waiting says. A thread that has not woken by the time the items are gone is not waited for: a run
// of a few small items costs no context switch.
// A run allocates nothing.
//
// Where     Each thread is pinned to its worker's CPU for good. Worker 0 is whoever calls run(), and only that thread
//           knows whether it lives for it: the thread of a program's steps (coordinator) or the one that computes
//           batches (node) pins itself by pin_caller() for as long as it does; any other caller stays where it is.
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
#include "common/threads/cpu_set.h"
#include "common/threads/cpus.h"
#include "common/threads/waiting.h"
#include "common/threads/watched_word.h"

namespace terrace {

struct PoolOptions {
  std::size_t n_workers = 1;  // the caller of run() among them, so n_workers - 1 threads are started; 1 to 4096
  std::vector<std::uint32_t> cpus = {};  // [n_workers] the CPU of each; empty: the threads run where their maker may
  Waiting waiting = Waiting::kBlock;
};

class Pool final : public Parallel {
 public:
  // kInvalidArgument: n_workers out of range; kOutOfMemory: the system starts no more threads; kIo: a thread cannot be
  // pinned.
  static Result<std::unique_ptr<Pool>> create(const PoolOptions& options);
  static Result<std::unique_ptr<Pool>> create(const CpuChoice& choice);
  ~Pool() override;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::size_t n_workers() const override { return threads_.size() + 1; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t item, std::size_t worker)> fn) override;
  // The counter only rises, so any run() is in order.
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t item, std::size_t worker)> fn) override {
    run(n_items, fn);
  }

  // Pins the calling thread to worker 0's CPU while the result lives. Threads that it starts meanwhile would inherit
  // that: start them before. kIo: the system refuses.
  Result<ThreadAffinity> pin_caller() const;

 private:
  using Work = FunctionRef<void(std::size_t, std::size_t)>;

  explicit Pool(const PoolOptions& options) : waiting_(options.waiting), cpus_(options.cpus) {}
  Status start_threads(std::size_t n_threads);
  void thread_main(std::size_t worker);
  bool join_run();
  void work(std::size_t worker);

  static constexpr std::size_t kLine = 64;          // one cache line, so that counters do not slow each other down
  static constexpr std::uint32_t kOpen = 1u << 31;  // in run_state_: threads may still join

  const Waiting waiting_;
  const std::vector<std::uint32_t> cpus_;  // [n_workers], or empty
  std::vector<std::thread> threads_;

  // The run in progress; written by run() before it opens run_state_, read only by those who joined.
  const Work* work_ = nullptr;
  std::size_t n_items_ = 0;

  alignas(kLine) std::atomic<std::size_t> next_item_ = 0;
  alignas(kLine) WatchedWord run_number_;                    // what sleeping threads watch
  alignas(kLine) std::atomic<std::uint32_t> run_state_ = 0;  // kOpen and how many threads have joined
  alignas(kLine) WatchedWord n_left_;                        // how many of those are through; the caller watches it
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> running_ = false;
};

}  // namespace terrace
