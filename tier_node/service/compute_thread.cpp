#include "tier_node/service/compute_thread.h"

#include <fmt/core.h>

#include <utility>

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

ComputeThread::ComputeThread(Parallel& parallel, const kernels::Ops& ops, FramePool& frames, WorkQueue& queue,
                             CompletionSink& sink)
    : outer_(parallel, ops, frames), inner_(parallel, ops, frames), queue_(queue), sink_(sink), thread_([this] {
        loop();
      }) {}

ComputeThread::~ComputeThread() {
  stopping_.store(true, std::memory_order_relaxed);
  queue_.stop();
  thread_.join();
}

void ComputeThread::loop() {
  while (Work* work = queue_.pop()) run(*work, outer_, work->batch.info.priority == wire::Priority::kPrompt);
}

bool ComputeThread::between_slices(const Work& work, bool let_decode_pass) {
  if (let_decode_pass)
    while (Work* urgent = queue_.try_pop_decode()) run(*urgent, inner_, false);
  return !work.cancelled.load(std::memory_order_relaxed) && !stopping_.load(std::memory_order_relaxed);
}

void ComputeThread::run(Work& work, BatchRunner& runner, bool let_decode_pass) {
  Completion end;
  end.work = &work;
  end.last = true;
  Status done = check_in_time(work);
  if (done.ok()) {
    Counters& counters = work.session->counters();
    done = runner.run(
        work,
        [&](OutFramePtr reply) {
          counters.rows += reply->reply.n_rows;
          counters.pairs += reply->reply.n_pairs;
          counters.compute_us += reply->reply.compute_us;
          // Before its last reply leaves: who has that and asks for Status finds the batch counted.
          if (reply->reply.range_index + 1 == work.batch.info.n_ranges) counters.batches += 1;
          Completion completion;
          completion.work = &work;
          completion.reply = std::move(reply);
          sink_.post(std::move(completion));
        },
        [&] { return between_slices(work, let_decode_pass); });
  }
  if (!done.ok()) end.error = done.error();
  sink_.post(std::move(end));
}

}  // namespace terrace::node
