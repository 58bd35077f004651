#include "common/threads/pool.h"

#include <fmt/format.h>

#include "common/base/block_signals.h"
#include "common/base/check.h"
#include "common/threads/start.h"

namespace terrace {
namespace {

constexpr std::size_t kMaxWorkers = 4096;

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(const PoolOptions& options) {
  if (options.n_workers < 1 || options.n_workers > kMaxWorkers) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} threads are not possible, 1 to {} are", options.n_workers, kMaxWorkers));
  }
  TERRACE_CHECK(options.cpus.empty() || options.cpus.size() == options.n_workers, "one CPU for each worker, or none");
  std::unique_ptr<Pool> pool(new Pool(options));
  TERRACE_RETURN_IF_ERROR(pool->start_threads(options.n_workers - 1));
  return pool;
}

Result<std::unique_ptr<Pool>> Pool::create(const CpuChoice& choice) {
  return create({.n_workers = choice.n_threads, .cpus = choice.pinned, .waiting = choice.waiting});
}

Status Pool::start_threads(std::size_t n_threads) {
  const BlockSignals blocked;
  threads_.reserve(n_threads);
  for (std::size_t i = 0; i < n_threads; ++i) {
    auto started = start_thread(fmt::format("terrace-w{}", i + 1), [this, worker = i + 1] { thread_main(worker); });
    if (!started.ok()) return started.error().in(fmt::format("{} of {} threads that compute", i + 1, n_threads + 1));
    threads_.push_back(std::move(*started));
    if (!cpus_.empty()) TERRACE_RETURN_IF_ERROR(confine(threads_.back(), {cpus_[i + 1]}));
  }
  return {};
}

Result<ThreadAffinity> Pool::pin_caller() const {
  return ThreadAffinity::confine(cpus_.empty() ? CpuSet() : CpuSet{cpus_.front()});
}

Pool::~Pool() {
  stopping_.store(true, std::memory_order_release);
  run_number_.increment();
  for (std::thread& thread : threads_) thread.join();
}

// A run is open between two writes of the caller to run_state_. A thread takes part only if it counts itself in while
// the run is open; the caller closes it when no item is left, and then knows how many threads to wait for. work_ and
// n_items_ change only after all of those are through, so a late thread never sees half of the next run.
void Pool::run(std::size_t n_items, Work fn) {
  if (n_items == 0) return;
  TERRACE_CHECK(!running_.exchange(true, std::memory_order_acquire), "two runs of one pool at a time");
  work_ = &fn;
  n_items_ = n_items;
  next_item_.store(0, std::memory_order_relaxed);
  n_left_.reset();
  const bool shared = n_items > 1 && !threads_.empty();
  if (shared) {
    run_state_.store(kOpen, std::memory_order_release);
    run_number_.increment();
  }
  work(0);
  if (shared) {
    const std::uint32_t joined = run_state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    for (std::uint32_t left; (left = n_left_.load()) != joined;) n_left_.wait_while(left, waiting_);
  }
  running_.store(false, std::memory_order_release);
}

void Pool::work(std::size_t worker) {
  const std::size_t n_items = n_items_;
  const Work fn = *work_;
  for (std::size_t item; (item = next_item_.fetch_add(1, std::memory_order_relaxed)) < n_items;) fn(item, worker);
}

bool Pool::join_run() {
  std::uint32_t state = run_state_.load(std::memory_order_relaxed);
  while ((state & kOpen) != 0)
    if (run_state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  return false;
}

void Pool::thread_main(std::size_t worker) {
  std::uint32_t seen = 0;
  while (true) {
    run_number_.wait_while(seen, waiting_);
    seen = run_number_.load();
    if (stopping_.load(std::memory_order_acquire)) return;
    if (!join_run()) continue;
    work(worker);
    n_left_.increment();
  }
}

}  // namespace terrace
