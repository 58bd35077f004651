// A model under a scheduler, listeners that remember what they heard, and what a request gives alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/sampler/sampler.h"
#include "coordinator/serve/scheduler/scheduler.h"
#include "coordinator/text/text_output.h"
#include "coordinator/text/vocabulary.h"
#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace::test {

// What came of a request. hashes: XXH3-64 of each token's logits.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> hashes;
  std::string text;
  bool operator==(const Answer&) const = default;
  bool begins(const Answer& whole) const {
    return tokens.size() <= whole.tokens.size() && std::equal(tokens.begin(), tokens.end(), whole.tokens.begin()) &&
           std::equal(hashes.begin(), hashes.end(), whole.hashes.begin());
  }
};

// Threads: any.
class Heard final : public serve::Listener {
 public:
  void on_prompt_progress(const serve::PromptProgress& progress) override {
    const std::lock_guard lock(mutex_);
    progress_.push_back(progress);
  }
  void on_piece(const serve::Piece& piece, const serve::Timings& so_far) override {
    const std::lock_guard lock(mutex_);
    for (const serve::Token& token : piece.tokens) {
      answer_.tokens.push_back(token.id);
      answer_.hashes.push_back(token.logits_xxh3);
      if (token.logprobs != nullptr) logprobs_.push_back(*token.logprobs);
    }
    answer_.text += piece.text;
    timings_ = so_far;
    changed_.notify_all();
  }
  void on_restart(const Error&) override {
    const std::lock_guard lock(mutex_);
    answer_ = {};
    logprobs_.clear();
  }
  void on_end(const serve::End& end) override {
    const std::lock_guard lock(mutex_);
    over_twice_ = over();
    reason_ = end.reason;
    timings_ = end.timings;
    slot_ = end.slot;
    stopping_word_ = end.stopping_word;
    changed_.notify_all();
  }
  void on_error(const Error& error, const serve::Timings& so_far) override {
    const std::lock_guard lock(mutex_);
    over_twice_ = over();
    error_ = error;
    timings_ = so_far;
    changed_.notify_all();
  }

  // False: a good while was not enough.
  bool wait_for_end() {
    return wait([this] { return over(); });
  }
  bool wait_for_tokens(std::size_t n) {
    return wait([&] { return over() || answer_.tokens.size() >= n; });
  }
  bool is_over() const {
    const std::lock_guard lock(mutex_);
    return over();
  }
  // Of a request that is over, or whose scheduler stands still.
  const Answer& answer() const { return answer_; }
  std::optional<serve::EndReason> reason() const { return reason_; }
  const std::optional<Error>& error() const { return error_; }
  const serve::Timings& timings() const { return timings_; }
  const std::vector<serve::PromptProgress>& progress() const { return progress_; }
  const std::vector<sampler::Logprobs>& logprobs() const { return logprobs_; }
  const std::string& stopping_word() const { return stopping_word_; }
  std::optional<std::uint32_t> slot() const { return slot_; }
  bool over_twice() const { return over_twice_; }

 private:
  bool over() const { return reason_.has_value() || error_.has_value(); }
  template <class Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(2), condition);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
  std::vector<serve::PromptProgress> progress_;
  std::vector<sampler::Logprobs> logprobs_;
  std::optional<serve::EndReason> reason_;
  std::optional<Error> error_;
  serve::Timings timings_;
  std::string stopping_word_;
  std::optional<std::uint32_t> slot_;
  bool over_twice_ = false;
};

// A model file's tokenizer, and what its requests give alone: one stream of a trunk, prompt and then token by token, as
// `terrace generate` runs them (tests/e2e/streams_test.cpp compares with that).
class AloneRuns {
 public:
  explicit AloneRuns(const std::filesystem::path& model)
      : model_(model, {}, serial_),
        ops_(value_of(kernels::select_ops(kernels::detect_cpu_features(), std::nullopt))),
        tokenizer_(value_of(text::Tokenizer::make(value_of(text::vocabulary_from_gguf(model_.file()))))) {}

  const text::Tokenizer& tokenizer() const { return tokenizer_; }

  std::pair<Answer, serve::EndReason> run(const serve::Request& request) {
    Sequence sequence(model_.trunk());
    sampler::Sampler sampler(request.sampling, model_.info().vocabulary, ops_);
    auto output = value_of(text::TextOutput::make(tokenizer_, {.special = request.control_as_text}, request.stops));
    std::vector<std::int32_t> history = request.prompt;
    Answer answer;
    std::optional<serve::EndReason> reason;
    if (request.max_tokens == 0) reason = serve::EndReason::kLimit;
    std::vector<float> logits = sequence.feed(request.prompt, model_.trunk().max_rows());
    while (!reason) {
      answer.hashes.push_back(XXH3_64bits(logits.data(), logits.size() * sizeof(float)));
      history.push_back(value_of(sampler.sample(logits, history.size(), history)));
      answer.tokens.push_back(history.back());
      if (tokenizer_.is_stop(history.back()) && !request.control_as_text) {
        reason = serve::EndReason::kEos;
        break;
      }
      const auto out = output.push(history.back());
      answer.text += out.text;
      if (out.stopped)
        reason = serve::EndReason::kStop;
      else if (tokenizer_.is_stop(history.back()))
        reason = serve::EndReason::kEos;
      else if (answer.tokens.size() == request.max_tokens)
        reason = serve::EndReason::kLimit;
      else if (history.size() > model_.trunk().context())
        reason = serve::EndReason::kContext;
      else
        logits = sequence.feed(std::span(history).last(1), 1);
    }
    if (reason != serve::EndReason::kStop) answer.text += output.finish().text;
    return {std::move(answer), *reason};
  }

 private:
  Serial serial_;
  ModelUnderTest model_;
  kernels::Ops ops_;
  text::Tokenizer tokenizer_;
};

// The tiny model's, made once for a test program.
inline AloneRuns& tiny_alone() {
  static AloneRuns runs(tiny_model("tiny-mix"));
  return runs;
}

// The tiny model behind the parts of a scheduler. One owner thread until a scheduler has it.
class ServedModel {
 public:
  static arch::TrunkOptions trunk(std::uint32_t max_streams, std::uint32_t max_rows = 64,
                                  std::uint64_t cache_blocks = 0) {
    arch::TrunkOptions options;
    options.max_streams = max_streams;
    options.max_rows = max_rows;
    options.cache_bytes = cache_blocks * kBlockBytes;
    return options;
  }
  // Of the tiny model: 2 layers, 2 heads, 64 + 64 values of f16 a position.
  static constexpr std::uint64_t kBlockBytes = std::uint64_t{2} * 2 * 128 * 2 * kernels::kKvBlockPositions;

  explicit ServedModel(const arch::TrunkOptions& options, Parallel& parallel)
      : ops_(value_of(kernels::select_ops(kernels::detect_cpu_features(), std::nullopt))),
        model_(tiny_model("tiny-mix"), options, parallel),
        parallel_(parallel) {}

  ModelUnderTest& model() { return model_; }
  arch::Trunk& trunk() { return model_.trunk(); }
  serve::SchedulerParts parts() { return {model_.trunk(), tiny_alone().tokenizer(), ops_, parallel_, {}}; }

 private:
  kernels::Ops ops_;
  ModelUnderTest model_;
  Parallel& parallel_;
};

// A greedy request whose logits are hashed.
inline serve::Request request_for(std::vector<std::int32_t> prompt, std::uint64_t max_tokens = 8) {
  serve::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.hash_logits = true;
  return request;
}

// So many tokens, other ones for each seed. None of them ends a text.
inline std::vector<std::int32_t> some_tokens(std::size_t n, std::int32_t seed) {
  std::vector<std::int32_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = 3 + (seed * 131 + static_cast<std::int32_t>(i) * 17) % 300;
  return tokens;
}

}  // namespace terrace::test
