// The one thread that computes: takes batches from the queue, runs them on the pool, hands replies to the I/O thread.
//
// A prompt batch is worked in slices; between two of them every decode batch that waits is run first, on an executor
// of its own. A decode batch is not interrupted. Another thread may run a batch that it has claimed from the queue.
#pragma once

#include <memory>
#include <thread>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/threads/cpu_set.h"
#include "tier_node/service/batch_runner.h"
#include "tier_node/service/work.h"
#include "tier_node/service/work_queue.h"

namespace terrace::node {

// One for each runner.
struct CpuExecutors {
  std::unique_ptr<PairExecutor> outer, inner;
};

// Of the node's card, one for each runner; both null without a card.
struct CardExecutors {
  std::unique_ptr<kernels::CardExecutor> outer, inner;
};

class ComputeThread {
 public:
  // References are borrowed and outlive it; the thread is the only one that uses `parallel`. Errors as start_thread().
  static Result<std::unique_ptr<ComputeThread>> start(Parallel& parallel, FramePool& frames, CpuExecutors cpu,
                                                      CardExecutors card, WorkQueue& queue, CompletionSink& sink);
  // Stops the queue and waits for the batch in hand, which ends at its next slice.
  ~ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;

  // Computes on the calling thread what that has claimed; completions go to `sink`.
  void run_claimed(Work& work, CompletionSink& sink) { run(work, inner_, sink, false); }
  // Keeps the thread on these CPUs. kIo: the system refuses.
  Status pin(const CpuSet& cpus) { return confine(thread_, cpus); }

 private:
  ComputeThread(Parallel& parallel, FramePool& frames, CpuExecutors cpu, CardExecutors card, WorkQueue& queue,
                CompletionSink& sink);
  void loop();
  void run(Work& work, BatchRunner& runner, CompletionSink& sink, bool let_decode_pass);
  bool between_slices(const Work& work, bool let_decode_pass);

  BatchRunner outer_;
  BatchRunner inner_;  // decode batches between the slices of a prompt's
  WorkQueue& queue_;
  CompletionSink& sink_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace terrace::node
