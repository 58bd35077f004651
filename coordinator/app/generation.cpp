#include "coordinator/app/generation.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/time.h"
#include "coordinator/app/sum_hashes.h"
#include "coordinator/text/text_output.h"

namespace terrace::app {
namespace {

using Clock = std::chrono::steady_clock;

// For a reply whose end nobody knows: a context may be claimed by a file, a limit by a user.
constexpr std::uint64_t kTokensSetAside = 1 << 20;
// Of the cache, for a reply that may end much sooner; a longer one takes a block in 32 steps.
constexpr std::uint64_t kPositionsSetAside = 4096;
// Of text for each of them: few tokens are longer.
constexpr std::uint64_t kBytesSetAside = 8;

bool interrupted(const GenerationRequest& request) { return request.interrupted && request.interrupted(); }

// Gives text on as it becomes certain, and keeps it.
class Shown {
 public:
  Shown(FunctionRef<Status(std::string_view)> on_text, bool at_end, std::uint64_t tokens)
      : on_text_(on_text), at_end_(at_end) {
    text_.reserve(tokens * kBytesSetAside);
  }
  void add(std::string_view piece) {
    if (piece.empty() || !status_.ok()) return;
    text_ += piece;
    if (!at_end_) status_ = on_text_(piece);
  }
  bool at_end() const { return at_end_; }
  void take_back() { text_.clear(); }
  // The first error of on_text.
  const Status& status() const { return status_; }
  Result<std::string> end() {
    if (at_end_ && status_.ok() && !text_.empty()) status_ = on_text_(text_);
    if (!status_.ok()) return status_.error();
    return std::move(text_);
  }

 private:
  FunctionRef<Status(std::string_view)> on_text_;
  bool at_end_;
  Status status_;
  std::string text_;
};

// The trunk's traces, as long as there is somebody to see them.
class SeenSums {
 public:
  SeenSums(arch::Trunk& trunk, bool wanted) {
    if (!wanted) return;
    trunk_ = &trunk;
    trunk.set_trace([this](const arch::LayerTrace& trace) { hashes_.see(trace); });
  }
  ~SeenSums() {
    if (trunk_ != nullptr) trunk_->set_trace(nullptr);
  }
  SeenSums(const SeenSums&) = delete;
  SeenSums& operator=(const SeenSums&) = delete;

  void begin(std::size_t position) { hashes_.begin(position); }
  // One of each of n_tokens that were chosen behind `end` positions, the first of which are `before`; none if nobody
  // wanted them.
  std::vector<std::uint64_t> of_tokens(std::size_t n_tokens, std::size_t before, std::size_t end) const {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; trunk_ != nullptr && i < n_tokens; ++i)
      all.push_back(hashes_.of(i == 0 ? before : end + i - 1, end + i));
    return all;
  }

 private:
  arch::Trunk* trunk_ = nullptr;
  SumHashes hashes_;
};

// A run while it goes on.
class Writer {
 public:
  Writer(OpenStream& stream, SeenSums& sums, const GenerationRequest& request, const text::Tokenizer& tokenizer,
         text::TextOutput output, Shown shown, std::uint64_t room)
      : stream_(stream),
        sums_(sums),
        request_(request),
        tokenizer_(tokenizer),
        output_(std::move(output)),
        shown_(std::move(shown)),
        history_(request.before) {
    history_.insert(history_.end(), request.prompt.begin(), request.prompt.end());
    history_.reserve(history_.size() + room);
    made_.tokens.reserve(room);
    steps_.reserve(room);
    if (request.hash_logits) made_.logits_xxh3.reserve(room);
    made_.prompt_tokens = request.prompt.size();
  }

  // Logits of the last token of what there is; empty where the run was interrupted before it.
  Result<std::span<const float>> logits();
  // Takes a token that was chosen from them. True: the run is over.
  bool take(std::int32_t token, std::uint32_t context);
  void interrupt() { made_.stop_reason = StopReason::kInterrupted; }
  const std::vector<std::int32_t>& history() const { return history_; }
  bool is_full() const { return made_.tokens.size() >= request_.max_tokens; }
  const Status& status() const { return shown_.status(); }
  void add_hash(std::span<const float> logits) {
    if (request_.hash_logits) made_.logits_xxh3.push_back(XXH3_64bits(logits.data(), logits.size_bytes()));
  }
  Result<Generation> end();

 private:
  Result<std::span<const float>> compute();
  Status roll_back(const Error& why);
  bool show(std::int32_t token);

  OpenStream& stream_;
  SeenSums& sums_;
  const GenerationRequest& request_;
  const text::Tokenizer& tokenizer_;
  text::TextOutput output_;
  Shown shown_;
  std::vector<std::int32_t> history_;  // before, prompt, tokens made
  std::vector<std::uint64_t> steps_;   // [tokens made] in which each was
  Generation made_;
};

Result<std::span<const float>> Writer::logits() {
  for (;;) {
    const Result<std::span<const float>> computed = compute();
    if (computed.ok() || computed.error().code() != ErrorCode::kUncertain) return computed;
    TERRACE_RETURN_IF_ERROR(roll_back(computed.error()));
  }
}

// What the stream lacks of the history: of a prompt in batches, else one row.
Result<std::span<const float>> Writer::compute() {
  for (;;) {
    const std::span<const std::int32_t> rest = std::span(history_).subspan(stream_.length());
    if ((rest.size() > 1 || made_.tokens.empty()) && interrupted(request_)) return std::span<const float>();
    const auto chunk = rest.first(std::min<std::size_t>(rest.size(), request_.batch));
    const bool last = chunk.size() == rest.size();
    sums_.begin(stream_.length());
    TERRACE_ASSIGN_OR_RETURN(const std::span<const float> logits,
                             stream_.step(chunk, last ? WantLogits::kLast : WantLogits::kNone));
    if (last) return logits;
  }
}

// A node was found to compute wrong: tokens chosen since its last clean audit are forgotten, and so is what the stream
// holds from then. Tokens that somebody has seen cannot be.
Status Writer::roll_back(const Error& why) {
  const std::uint64_t since = stream_.uncertain_since();
  const auto certain = static_cast<std::size_t>(std::ranges::lower_bound(steps_, since) - steps_.begin());
  const auto ends_at = [&](std::size_t position) {
    return Error(ErrorCode::kUncertain,
                 fmt::format("{}; the text is not certain from position {} on and ends here", why.text(), position));
  };
  if (request_.seen_until_step >= since)
    return Error(ErrorCode::kUncertain, fmt::format("{}; what was said before is not certain: begin anew", why.text()));
  if (certain < steps_.size() && !shown_.at_end()) return ends_at(history_.size() - (steps_.size() - certain));
  history_.resize(history_.size() - (steps_.size() - certain));
  steps_.resize(certain);
  made_.tokens.resize(certain);
  if (request_.hash_logits) made_.logits_xxh3.resize(certain);
  stream_.forget_uncertain(history_.size() - 1);
  if (shown_.at_end()) {
    TERRACE_ASSIGN_OR_RETURN(output_,
                             text::TextOutput::make(tokenizer_, {.special = request_.control_as_text}, request_.stops));
    shown_.take_back();
    for (const std::int32_t token : made_.tokens) (void)show(token);
  }
  if (request_.on_roll_back) request_.on_roll_back(why);
  return {};
}

// Whether a stop string ends the text here.
bool Writer::show(std::int32_t token) {
  const text::StopMatcher::Output out = output_.push(token);
  shown_.add(out.text);
  return out.stopped;
}

bool Writer::take(std::int32_t token, std::uint32_t context) {
  made_.tokens.push_back(token);
  steps_.push_back(stream_.last_step());
  history_.push_back(token);
  if (tokenizer_.is_stop(token)) {
    made_.stop_reason = StopReason::kEos;
    if (request_.control_as_text) (void)show(token);
  } else if (show(token)) {
    made_.stop_reason = StopReason::kStop;
  } else if (made_.tokens.size() == request_.max_tokens) {
    made_.stop_reason = StopReason::kLimit;
  } else if (history_.size() > context) {
    made_.stop_reason = StopReason::kContext;
  } else if (interrupted(request_)) {
    made_.stop_reason = StopReason::kInterrupted;
  } else {
    return false;
  }
  return true;
}

Result<Generation> Writer::end() {
  if (made_.stop_reason != StopReason::kStop) shown_.add(output_.finish().text);
  TERRACE_ASSIGN_OR_RETURN(made_.text, shown_.end());
  if (!steps_.empty()) made_.last_step = steps_.back();
  made_.sums_xxh3 = sums_.of_tokens(made_.tokens.size(), request_.before.size(), history_.size() - made_.tokens.size());
  return std::move(made_);
}

}  // namespace

const char* name(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kStop:
      return "stop";
    case StopReason::kContext:
      return "context";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "unknown";
}

const char* how_to_lengthen(std::uint32_t context, const arch::ModelInfo& info) {
  return context < info.context ? "raise --ctx-size" : "the model's context is no longer";
}

Status check_prompt(const GenerationRequest& request, const arch::ModelInfo& info, std::uint32_t context) {
  if (request.prompt.empty())
    return Error(ErrorCode::kInvalidArgument,
                 "the prompt has no tokens, and this model begins texts with none; give some text");
  for (const std::int32_t id : request.prompt)
    if (id < 0 || static_cast<std::uint32_t>(id) >= info.vocabulary)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the prompt holds token {}; this model has tokens 0 to {}", id, info.vocabulary - 1));
  if (request.before.size() + request.prompt.size() > context)
    return Error(ErrorCode::kContextFull,
                 fmt::format("the prompt has {} tokens and the context holds {}; shorten the prompt{}{}",
                             request.before.size() + request.prompt.size(), context,
                             context < info.context ? " or " : ", ", how_to_lengthen(context, info)));
  return {};
}

Result<Generation> generate(Engine& engine, OpenStream& stream, const GenerationRequest& request,
                            FunctionRef<Status(std::string_view)> on_text) {
  arch::Trunk& trunk = engine.trunk();
  TERRACE_RETURN_IF_ERROR(sampler::validate(request.sampling));
  TERRACE_RETURN_IF_ERROR(check_prompt(request, trunk.info(), trunk.context()));
  TERRACE_CHECK(stream.length() == request.before.size(), "the stream holds what was computed before");
  TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, engine.tokenizer());
  TERRACE_ASSIGN_OR_RETURN(text::TextOutput output,
                           text::TextOutput::make(*tokenizer, {.special = request.control_as_text}, request.stops));
  sampler::Sampler sampler(request.sampling, trunk.info().vocabulary, engine.ops());
  // All that grows by the token has its room from the start.
  const auto room = std::min<std::uint64_t>({request.max_tokens, trunk.context(), kTokensSetAside});
  stream.set_aside(static_cast<std::uint32_t>(request.prompt.size() + std::min(room, kPositionsSetAside)));
  SeenSums sums(trunk, request.hash_sums);
  Writer writer(stream, sums, request, *tokenizer, std::move(output), Shown(on_text, request.text_at_end, room), room);
  const auto begin = Clock::now();
  TERRACE_ASSIGN_OR_RETURN(std::span<const float> logits, writer.logits());
  const auto prompt_end = Clock::now();
  double decode_steps_ms = 0;
  bool stopped = writer.is_full();
  while (!stopped && !logits.empty()) {
    writer.add_hash(logits);
    const std::vector<std::int32_t>& history = writer.history();
    std::optional<std::int32_t> token = sampler.takes_largest() ? stream.largest() : std::nullopt;
    if (!token) {
      TERRACE_ASSIGN_OR_RETURN(token, sampler.sample(logits, history.size(), history));
    }
    stopped = writer.take(*token, trunk.context());
    if (stopped) break;
    TERRACE_RETURN_IF_ERROR(writer.status());
    const auto step_begin = Clock::now();
    TERRACE_ASSIGN_OR_RETURN(logits, writer.logits());
    decode_steps_ms += ms_between(step_begin, Clock::now());
  }
  if (logits.empty()) writer.interrupt();
  TERRACE_ASSIGN_OR_RETURN(Generation result, writer.end());
  result.prompt_ms = ms_between(begin, prompt_end);
  result.decode_steps_ms = decode_steps_ms;
  result.decode_ms = ms_between(prompt_end, Clock::now());
  return result;
}

Result<Generation> generate(Engine& engine, const GenerationRequest& request,
                            FunctionRef<Status(std::string_view)> on_text) {
  TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(engine.trunk()));
  return generate(engine, stream, request, on_text);
}

}  // namespace terrace::app
