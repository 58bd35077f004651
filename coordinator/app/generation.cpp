#include "coordinator/app/generation.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "common/base/check.h"
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

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

bool interrupted(const GenerationRequest& request) { return request.interrupted && request.interrupted(); }

// All of the prompt; the logits of its last token, empty where the run was interrupted before it.
Result<std::span<const float>> run_prompt(OpenStream& stream, const GenerationRequest& request) {
  std::span<const std::int32_t> rest = request.prompt;
  while (!interrupted(request)) {
    const auto chunk = rest.first(std::min<std::size_t>(rest.size(), request.batch));
    rest = rest.subspan(chunk.size());
    const WantLogits want = rest.empty() ? WantLogits::kLast : WantLogits::kNone;
    TERRACE_ASSIGN_OR_RETURN(const std::span<const float> logits, stream.step(chunk, want));
    if (rest.empty()) return logits;
  }
  return std::span<const float>();
}

// Gives text on as it becomes certain, and keeps it.
class Shown {
 public:
  Shown(FunctionRef<Status(std::string_view)> on_text, std::uint64_t tokens) : on_text_(on_text) {
    text_.reserve(tokens * kBytesSetAside);
  }
  void add(std::string_view piece) {
    if (piece.empty() || !status_.ok()) return;
    text_ += piece;
    status_ = on_text_(piece);
  }
  // The first error of on_text.
  const Status& status() const { return status_; }
  std::string take() { return std::move(text_); }

 private:
  FunctionRef<Status(std::string_view)> on_text_;
  Status status_;
  std::string text_;
};

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
  Shown shown(on_text, room);
  std::vector<std::int32_t> history = request.before;
  history.insert(history.end(), request.prompt.begin(), request.prompt.end());
  history.reserve(history.size() + room);

  Generation result;
  result.tokens.reserve(room);
  if (request.hash_logits) result.logits_xxh3.reserve(room);
  result.prompt_tokens = request.prompt.size();
  const auto push = [&](std::int32_t token) {
    const text::StopMatcher::Output out = output.push(token);
    shown.add(out.text);
    return out.stopped;
  };
  const auto begin = Clock::now();
  TERRACE_ASSIGN_OR_RETURN(std::span<const float> logits, run_prompt(stream, request));
  const auto prompt_end = Clock::now();
  bool stopped = logits.empty();
  if (stopped) result.stop_reason = StopReason::kInterrupted;
  while (!stopped && result.tokens.size() < request.max_tokens) {
    if (request.hash_logits) result.logits_xxh3.push_back(XXH3_64bits(logits.data(), logits.size_bytes()));
    TERRACE_ASSIGN_OR_RETURN(const std::int32_t token, sampler.sample(logits, history.size(), history));
    result.tokens.push_back(token);
    history.push_back(token);
    stopped = true;
    if (tokenizer->is_stop(token)) {
      result.stop_reason = StopReason::kEos;
      if (request.control_as_text) shown.add(output.push(token).text);
    } else if (push(token)) {
      result.stop_reason = StopReason::kStop;
    } else if (result.tokens.size() == request.max_tokens) {
      result.stop_reason = StopReason::kLimit;
    } else if (history.size() > trunk.context()) {
      result.stop_reason = StopReason::kContext;
    } else if (interrupted(request)) {
      result.stop_reason = StopReason::kInterrupted;
    } else {
      stopped = false;
      TERRACE_RETURN_IF_ERROR(shown.status());
      const auto step_begin = Clock::now();
      TERRACE_ASSIGN_OR_RETURN(logits, stream.step({&token, 1}, WantLogits::kLast));
      result.decode_steps_ms += ms_between(step_begin, Clock::now());
    }
  }
  if (result.stop_reason != StopReason::kStop) shown.add(output.finish().text);
  TERRACE_RETURN_IF_ERROR(shown.status());
  result.text = shown.take();
  result.prompt_ms = ms_between(begin, prompt_end);
  result.decode_ms = ms_between(prompt_end, Clock::now());
  return result;
}

Result<Generation> generate(Engine& engine, const GenerationRequest& request,
                            FunctionRef<Status(std::string_view)> on_text) {
  TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(engine.trunk()));
  return generate(engine, stream, request, on_text);
}

}  // namespace terrace::app
