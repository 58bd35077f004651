#include "tier_node/service/compute_thread.h"

#include <fmt/core.h>

#include <utility>

#include "common/threads/start.h"

namespace terrace::node {
namespace {

// Nobody waits for a batch whose time was over before its turn came.
Status check_in_time(const Work& work) {
  const auto waited =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - work.arrived);
  const std::uint32_t remaining_us = work.batch.info.remaining_us;
  if (remaining_us == 0 || waited.count() <= remaining_us) return {};
  return Error(ErrorCode::kDeadline, fmt::format("batch {} waited {} us for its turn, {} us were left when it was sent",
                                                 work.batch.sequence, waited.count(), remaining_us));
}

}  // namespace

Result<std::unique_ptr<ComputeThread>> ComputeThread::start(Parallel& parallel, FramePool& frames, CpuExecutors cpu,
                                                            CardExecutors card, WorkQueue& queue,
                                                            CompletionSink& sink) {
  std::unique_ptr<ComputeThread> made(
      new ComputeThread(parallel, frames, std::move(cpu), std::move(card), queue, sink));
  TERRACE_ASSIGN_OR_RETURN(made->thread_, start_thread("terrace-compute", [m = made.get()] { m->loop(); }));
  return made;
}

ComputeThread::ComputeThread(Parallel& parallel, FramePool& frames, CpuExecutors cpu, CardExecutors card,
                             WorkQueue& queue, CompletionSink& sink)
    : outer_(parallel, frames, std::move(cpu.outer), std::move(card.outer)),
      inner_(parallel, frames, std::move(cpu.inner), std::move(card.inner)),
      queue_(queue),
      sink_(sink) {}

ComputeThread::~ComputeThread() {
  stopping_.store(true, std::memory_order_relaxed);
  queue_.stop();
  if (thread_.joinable()) thread_.join();
}

void ComputeThread::loop() {
  while (Work* work = queue_.pop()) run(*work, outer_, sink_, work->batch.info.priority == wire::Priority::kPrompt);
}

bool ComputeThread::between_slices(const Work& work, bool let_decode_pass) {
  if (let_decode_pass)
    while (Work* urgent = queue_.try_pop_decode()) run(*urgent, inner_, sink_, false);
  return !work.cancelled.load(std::memory_order_relaxed) && !stopping_.load(std::memory_order_relaxed);
}

void ComputeThread::run(Work& work, BatchRunner& runner, CompletionSink& sink, bool let_decode_pass) {
  bool ended = false;  // with its last reply, and `work` is the I/O thread's again: one wake-up tells both
  Status done = check_in_time(work);
  if (done.ok()) {
    Counters& counters = work.session->counters();
    done = runner.run(
        work,
        [&](OutFramePtr reply) {
          counters.rows += reply->reply.n_rows;
          counters.pairs += reply->reply.n_pairs;
          counters.compute_us += reply->reply.compute_us;
          ended = reply->reply.range_index + 1 == work.batch.info.n_ranges;
          // Before its last reply leaves: who has that and asks for Status finds the batch counted.
          if (ended) counters.batches += 1;
          sink.post({&work, std::move(reply), std::nullopt, ended});
        },
        [&] { return between_slices(work, let_decode_pass); });
  }
  if (!ended) sink.post({&work, nullptr, done.ok() ? std::nullopt : std::optional(done.error()), true});
}

}  // namespace terrace::node
