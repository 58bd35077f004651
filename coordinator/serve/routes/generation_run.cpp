#include "coordinator/serve/routes/generation_run.h"

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/serve/routes/replies.h"

namespace terrace::serve {
namespace {

class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(api::Generation generation, std::shared_ptr<http::Exchange> exchange, Scheduler& scheduler)
      : exchange_(std::move(exchange)),
        scheduler_(scheduler),
        requests_(std::move(generation.requests)),
        stream_(generation.stream),
        ping_(generation.ping),
        answer_(std::move(generation.answer)),
        parts_(requests_.size()) {}

  void start();

  // Gives the answer the event of request `index`, and the client what the answer makes of it.
  template <class Event>
  void on(std::size_t index, Event event) {
    std::vector<RequestId> cancelled;
    {
      const std::scoped_lock lock(mutex_);
      if (!answer_) return;
      const api::Output output = event(*answer_);
      if (output.cancel) parts_[index].cancel = true;
      deliver(output);
      if (output.finished)
        for (Part& part : parts_) part.cancel = true;
      cancelled = to_cancel();
    }
    for (const RequestId id : cancelled) scheduler_.cancel(id);
  }
  void ended(std::size_t index);
  // For the log, of what the client is not to blame for.
  void note(const Error& error) {
    if (api::to_http(error).status >= 500) exchange_->note_failure(error.text());
  }

 private:
  struct Part {
    std::optional<RequestId> id;  // once submit() has returned
    bool ended = false;           // of itself
    bool cancel = false;          // is not wanted any more
    bool cancelled = false;       // and the scheduler was told
  };

  void begin_stream();
  void client_gone();
  // With mutex_.
  void deliver(const api::Output& output);
  std::vector<RequestId> to_cancel();

  const std::shared_ptr<http::Exchange> exchange_;
  Scheduler& scheduler_;
  std::vector<Request> requests_;  // until they are submitted
  const bool stream_;
  const bool ping_;

  std::mutex mutex_;  // guards what follows; the scheduler is never called with it
  std::unique_ptr<api::Answer> answer_;
  std::vector<Part> parts_;  // [requests]
  bool begun_ = false;       // the stream's head was sent
  bool finished_ = false;    // the answer's end was handed over
};

class PartListener final : public Listener {
 public:
  PartListener(std::shared_ptr<Run> run, std::size_t index) : run_(std::move(run)), index_(index) {}

  void on_prompt_progress(const PromptProgress& progress) override {
    run_->on(index_, [&](api::Answer& answer) { return answer.on_progress(index_, progress); });
  }
  void on_piece(const Piece& piece, const Timings& so_far) override {
    run_->on(index_, [&](api::Answer& answer) { return answer.on_piece(index_, piece, so_far); });
  }
  void on_restart(const Error& why) override {
    run_->on(index_, [&](api::Answer& answer) { return answer.on_restart(index_, why); });
  }
  void on_end(const End& end) override {
    run_->ended(index_);
    if (end.reason == EndReason::kStopping) run_->note(Error(ErrorCode::kRefused, "the server is stopping"));
    run_->on(index_, [&](api::Answer& answer) { return answer.on_end(index_, end); });
  }
  void on_error(const Error& error, const Timings& so_far) override {
    run_->ended(index_);
    run_->note(error);
    run_->on(index_, [&](api::Answer& answer) { return answer.on_error(index_, error, so_far); });
  }

 private:
  const std::shared_ptr<Run> run_;
  const std::size_t index_;
};

void Run::start() {
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_gone();
  });
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].client = exchange_->request().client;
    const auto id = scheduler_.submit(std::move(requests_[i]), std::make_shared<PartListener>(shared_from_this(), i));
    if (!id.ok()) {
      note(id.error());
      on(i, [&](api::Answer& answer) { return answer.on_error(i, id.error(), {}); });
      return;  // those before it were cancelled by on()
    }
    std::vector<RequestId> cancelled;
    {
      const std::scoped_lock lock(mutex_);
      parts_[i].id = *id;
      cancelled = to_cancel();
    }
    for (const RequestId one : cancelled) scheduler_.cancel(one);
  }
  // All are accepted: the client learns it now, and the head keeps its connection while the prompts wait.
  const std::scoped_lock lock(mutex_);
  if (stream_) begin_stream();
}

void Run::begin_stream() {
  if (std::exchange(begun_, true) || finished_) return;
  http::StreamHead head;
  if (!ping_) head.ping.clear();
  exchange_->begin_stream(std::move(head));
}

void Run::deliver(const api::Output& output) {
  if (finished_) return;
  const bool event_stream = answer_->content_type() == kEventStream;
  if (!output.bytes.empty() && event_stream) {
    begin_stream();
    exchange_->write(output.bytes);
  } else if (!output.bytes.empty() && begun_) {
    // An error that the answer still takes for the first thing said; but the head has gone out.
    exchange_->write(as_error_event(output.bytes, exchange_->request().path));
  } else if (!output.bytes.empty()) {
    exchange_->reply(to_http({.status = answer_->status(),
                              .body = output.bytes,
                              .retry_after_s = answer_->retry_after_s(),
                              .undone = answer_->undone()}));
  }
  if (!output.finished) return;
  finished_ = true;
  if (begun_) exchange_->finish();
}

std::vector<RequestId> Run::to_cancel() {
  std::vector<RequestId> out;
  for (Part& part : parts_) {
    if (!part.cancel || part.ended || part.cancelled || !part.id) continue;
    part.cancelled = true;
    out.push_back(*part.id);
  }
  return out;
}

void Run::ended(std::size_t index) {
  const std::scoped_lock lock(mutex_);
  parts_[index].ended = true;
}

void Run::client_gone() {
  std::vector<RequestId> cancelled;
  {
    const std::scoped_lock lock(mutex_);
    for (Part& part : parts_) part.cancel = true;
    cancelled = to_cancel();
  }
  for (const RequestId id : cancelled) scheduler_.cancel(id);
}

}  // namespace

void run_generation(api::Generation generation, std::shared_ptr<http::Exchange> exchange, Scheduler& scheduler) {
  std::make_shared<Run>(std::move(generation), std::move(exchange), scheduler)->start();
}

}  // namespace terrace::serve
