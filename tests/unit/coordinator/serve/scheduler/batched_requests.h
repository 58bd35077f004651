// Requests through a Batcher, step by step on the test's thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "coordinator/serve/scheduler/batcher.h"
#include "tests/unit/coordinator/serve/scheduler/served_model.h"

namespace terrace::test {

class BatchedRequests {
 public:
  BatchedRequests(ServedModel& model, const serve::SchedulerOptions& options)
      : BatchedRequests(model.parts(), options) {}
  BatchedRequests(const serve::SchedulerParts& parts, const serve::SchedulerOptions& options)
      : parts_(parts), batcher_(parts_, options) {}

  serve::Batcher& batcher() { return batcher_; }

  // Into the queue: its index.
  std::size_t submit(serve::Request request) {
    heard_.push_back(std::make_shared<Heard>());
    auto output =
        value_of(text::TextOutput::make(parts_.tokenizer, {.special = request.control_as_text}, request.stops));
    queue_.push_back(std::make_unique<serve::Job>(
        serve::Job{heard_.size(), std::move(request), heard_.back(), std::move(output), {}, serve::Clock::now()}));
    return heard_.size() - 1;
  }
  // Starts what can start, and takes a step.
  void step() {
    while (!queue_.empty() && batcher_.can_start(*queue_.front())) {
      batcher_.start(std::move(queue_.front()));
      queue_.pop_front();
    }
    if (batcher_.plan_step()) batcher_.take_step();
    (void)batcher_.take_ended();
  }
  void cancel(std::size_t index) {
    const auto waiting = std::ranges::find(queue_, index + 1, [](const auto& job) { return job->id; });
    if (waiting != queue_.end()) {
      serve::end_unstarted(**waiting, serve::EndReason::kCancelled);
      queue_.erase(waiting);
    } else {
      batcher_.end(index + 1, serve::EndReason::kCancelled);
    }
  }
  bool busy() const { return batcher_.busy() || !queue_.empty(); }
  // False: something is stuck.
  bool run_to_the_end(std::size_t most_steps = 10'000) {
    for (std::size_t i = 0; i < most_steps && busy(); ++i) step();
    return !busy();
  }
  Heard& heard(std::size_t index) { return *heard_[index]; }
  std::size_t size() const { return heard_.size(); }
  serve::SchedulerStatus status() const {
    serve::SchedulerStatus status;
    batcher_.describe(status);
    return status;
  }

 private:
  serve::SchedulerParts parts_;
  serve::Batcher batcher_;
  std::deque<std::unique_ptr<serve::Job>> queue_;
  std::vector<std::shared_ptr<Heard>> heard_;
};

}  // namespace terrace::test
