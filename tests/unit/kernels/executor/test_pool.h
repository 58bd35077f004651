// Parallel over real threads, small enough to be judged by eye: for tests only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/parallel.h"

namespace terrace::test {

class TestPool final : public Parallel {
 public:
  explicit TestPool(std::size_t n_workers) {
    for (std::size_t worker = 1; worker < n_workers; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
  }
  ~TestPool() override {
    start({});
    for (std::thread& thread : threads_) thread.join();
  }

  std::size_t n_workers() const override { return threads_.size() + 1; }

  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    next_item_ = 0;
    start({&fn, n_items});
    work({&fn, n_items}, 0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return n_busy_ == 0; });
  }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override { run(n_items, fn); }

 private:
  struct Job {
    FunctionRef<void(std::size_t, std::size_t)>* fn = nullptr;  // null: the end
    std::size_t n_items = 0;
  };

  void start(Job job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    n_busy_ = threads_.size();
    ++generation_;
    begin_.notify_all();
  }

  void work(const Job& job, std::size_t worker) {
    for (std::size_t item = next_item_++; item < job.n_items; item = next_item_++) (*job.fn)(item, worker);
  }

  void serve(std::size_t worker) {
    for (std::size_t seen = 0;;) {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      const Job job = job_;
      lock.unlock();
      if (job.fn == nullptr) return;
      work(job, worker);
      lock.lock();
      if (--n_busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begin_, done_;
  Job job_;                     // guarded by mutex_
  std::size_t n_busy_ = 0;      // guarded by mutex_
  std::size_t generation_ = 0;  // guarded by mutex_
  std::atomic<std::size_t> next_item_ = 0;
};

}  // namespace terrace::test
