// A client, a scheduler and an answer that do what a test says, and remember what was done to them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/serve/api/generation.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/scheduler/scheduler.h"

namespace terrace::serve {

class FakeExchange final : public http::Exchange {
 public:
  explicit FakeExchange(http::Request request) : request_(std::move(request)) {}

  const http::Request& request() const override { return request_; }
  void reply(http::Reply reply) override { replied = std::move(reply); }
  bool begin_stream(http::StreamHead head) override {
    began = std::move(head);
    return true;
  }
  bool write(std::string_view piece) override {
    written += piece;
    return true;
  }
  void finish() override { finished = true; }
  void note_failure(std::string_view reason) override { failure = reason; }
  void on_gone(std::function<void()> callback) override { leave = std::move(callback); }
  bool gone() const override { return false; }

  std::optional<http::Reply> replied;
  std::optional<http::StreamHead> began;
  std::string written;
  std::string failure;
  bool finished = false;
  std::function<void()> leave;  // the client goes

 private:
  http::Request request_;
};

class FakeScheduler final : public Scheduler {
 public:
  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override {
    if (refuse_from && submitted.size() >= *refuse_from) return Error(ErrorCode::kBusy, "the queue is full");
    submitted.push_back(std::move(request));
    listeners.push_back(std::move(listener));
    if (at_submit) at_submit(*listeners.back());
    return submitted.size();
  }
  bool cancel(RequestId request) override {
    cancelled.push_back(request);
    return true;
  }
  SchedulerStatus status() const override { return told; }
  std::uint32_t context() const override { return 2048; }
  Result<SlotFileResult> save_slot(std::uint32_t slot, const std::filesystem::path& file) override {
    saved.emplace_back(slot, file);
    return SlotFileResult{.tokens = 7, .bytes = 70, .ms = 1};
  }
  Result<SlotFileResult> restore_slot(std::uint32_t, const std::filesystem::path&) override {
    return Error(ErrorCode::kNotFound, "no such file");
  }
  Result<std::uint32_t> erase_slot(std::uint32_t) override { return 5; }
  void stop(std::chrono::milliseconds) override {}

  std::optional<std::size_t> refuse_from;  // submit() says kBusy from this request on
  std::function<void(Listener&)> at_submit;
  SchedulerStatus told;
  std::vector<Request> submitted;
  std::vector<std::shared_ptr<Listener>> listeners;  // of submitted
  std::vector<RequestId> cancelled;                  // ids count from 1
  std::vector<std::pair<std::uint32_t, std::filesystem::path>> saved;
};

// Says "piece N;" for each piece and is finished when every request has ended; an error ends it at once, with a body
// that is JSON where nothing was said before.
class FakeAnswer final : public api::Answer {
 public:
  FakeAnswer(std::size_t requests, bool stream) : left_(requests), stream_(stream) {}

  api::Output on_progress(std::size_t, const PromptProgress&) override { return {}; }
  api::Output on_piece(std::size_t index, const Piece&, const Timings&) override {
    if (cancel_at_piece) return {.bytes = "", .finished = false, .cancel = true};
    return say("piece " + std::to_string(index) + ";");
  }
  api::Output on_restart(std::size_t, const Error&) override { return {}; }
  api::Output on_end(std::size_t, const End&) override {
    if (failed_) return {};
    --left_;
    api::Output output = say(left_ == 0 ? "end;" : "");
    output.finished = left_ == 0;
    if (output.finished && !stream_) output.bytes = kept_;
    return output;
  }
  api::Output on_error(std::size_t, const Error& error, const Timings&) override {
    if (failed_) return {};
    failed_ = true;
    if (!said_) error_status_ = error.code() == ErrorCode::kBusy ? 503 : 500;
    return {.bytes = "{\"error\":\"" + error.text() + "\"}", .finished = true, .cancel = false};
  }
  int status() const override { return error_status_.value_or(200); }
  std::string_view content_type() const override {
    return stream_ && !error_status_ ? "text/event-stream" : "application/json; charset=utf-8";
  }
  std::optional<std::uint32_t> retry_after_s() const override {
    return error_status_ == 503 ? std::optional<std::uint32_t>(2) : std::nullopt;
  }

  bool undone() const override { return false; }

  bool cancel_at_piece = false;

 private:
  api::Output say(const std::string& bytes) {
    if (!stream_) {
      kept_ += bytes;
      return {};
    }
    said_ = said_ || !bytes.empty();
    return {.bytes = bytes, .finished = false, .cancel = false};
  }

  std::size_t left_;
  bool stream_;
  bool said_ = false;
  bool failed_ = false;
  std::optional<int> error_status_;
  std::string kept_;
};

}  // namespace terrace::serve
