#include "coordinator/serve/scheduler/run.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace terrace::serve {
namespace {

// The request's biases, and with ignore_eos a ban on what ends a text: whatever bias such a token has else is moot.
std::vector<sampler::LogitBias> biases_of(const Request& request, const text::Tokenizer& tokenizer) {
  std::vector<sampler::LogitBias> biases = request.logit_bias;
  if (!request.ignore_eos) return biases;
  std::erase_if(biases, [&](const sampler::LogitBias& bias) { return tokenizer.is_stop(bias.token); });
  for (const std::int32_t id : tokenizer.stop_ids()) biases.push_back({id, sampler::LogitBias::kBan});
  return biases;
}

}  // namespace

Run::Run(std::unique_ptr<Job> job, const RunParts& parts, Clock::time_point now)
    : job_(std::move(job)),
      parts_(parts),
      sampler_(job_->request.sampling, parts.vocabulary, parts.ops, biases_of(job_->request, parts.tokenizer),
               sampler::Sampler::NoMemory()),
      tokens_(job_->request.prompt),
      prompt_tokens_(static_cast<std::uint32_t>(tokens_.size())),
      started_(now),
      first_token_(now),
      last_event_(now) {
  const auto room = std::min<std::uint64_t>({job_->request.max_tokens, parts.context, kTokensSetAside}) + 1;
  tokens_.reserve(tokens_.size() + room);
  made_in_.reserve(room);
  timings_.queue_ms = ms_between(job_->submitted, now);
}

void Run::begin(std::uint32_t cached, Clock::time_point now) {
  if (std::exchange(begun_, true)) return;
  timings_.cache_n = cached;
  prompt_went_on(cached, now);
}

void Run::prompt_went_on(std::uint32_t stored, Clock::time_point now) {
  if (made() > 0) return;
  stored = std::min(stored, prompt_tokens_);
  timings_.prompt_n = std::max(timings_.prompt_n, stored - std::min(stored, timings_.cache_n));
  if (!job_->request.progress) return;
  job_->listener->on_prompt_progress(
      {.total = prompt_tokens_, .cached = timings_.cache_n, .processed = stored, .ms = ms_between(started_, now)});
}

void Run::choose(std::span<const float> logits, std::optional<std::int32_t> largest, sampler::SamplerMemory& memory) {
  choice_ = try_choose(logits, largest, memory);
}

Status Run::try_choose(std::span<const float> logits, std::optional<std::int32_t> largest,
                       sampler::SamplerMemory& memory) {
  chosen_ = {};
  const Request& request = job_->request;
  if (request.hash_logits) chosen_.logits_xxh3 = XXH3_64bits(logits.data(), logits.size_bytes());
  std::span<const std::uint64_t> mask;
  if (job_->grammar) {
    TERRACE_ASSIGN_OR_RETURN(mask, job_->grammar->allowed_tokens());
  }
  if (largest && sampler_.takes_largest(mask)) {
    chosen_.id = *largest;
  } else {
    TERRACE_ASSIGN_OR_RETURN(chosen_.id, sampler_.sample(logits, tokens_.size(), tokens_, mask, memory));
  }
  if (request.n_probs == 0) return {};
  chosen_.logprobs = &logprobs_;
  return sampler::find_logprobs(logits, chosen_.id, request.n_probs, parts_.ops, logprobs_);
}

Result<std::optional<EndReason>> Run::take_token(Clock::time_point now, std::uint64_t step) {
  TERRACE_RETURN_IF_ERROR(choice_);
  if (job_->grammar) TERRACE_RETURN_IF_ERROR(job_->grammar->accept(chosen_.id));
  if (made() == 0) {
    timings_.prompt_ms = ms_between(started_, now);
    first_token_ = now;
  }
  tokens_.push_back(chosen_.id);
  made_in_.push_back(step);
  ++timings_.predicted_n;
  timings_.predicted_ms = ms_between(first_token_, now);
  last_event_ = now;
  std::string_view text;
  const std::optional<EndReason> reason = add(chosen_.id, text);
  job_->listener->on_piece({text, {&chosen_, 1}}, timings_);
  return reason;
}

Status Run::roll_back(std::uint64_t since, const Error& why) {
  const auto certain = static_cast<std::size_t>(std::ranges::lower_bound(made_in_, since) - made_in_.begin());
  if (certain == made_in_.size()) return {};
  const Request& request = job_->request;
  if (request.streamed)
    return Error(ErrorCode::kUncertain,
                 fmt::format("{}; the reply is not certain from position {} (its token {}) on and ends here",
                             why.text(), prompt_tokens_ + certain, certain + 1));
  // What was told of their logits is not kept: with it, all of the reply is chosen again.
  const bool tells_logits = request.n_probs > 0 || request.hash_logits;
  return tell_again(tells_logits ? 0 : certain, why);
}

// The reply from its beginning, as far as its first n_tokens; it had no end within them.
Status Run::tell_again(std::size_t n_tokens, const Error& why) {
  const Request& request = job_->request;
  tokens_.resize(prompt_tokens_ + n_tokens);
  made_in_.resize(n_tokens);
  timings_.predicted_n = 0;
  job_->listener->on_restart(why);
  TERRACE_ASSIGN_OR_RETURN(
      job_->output, text::TextOutput::make(parts_.tokenizer, {.special = request.control_as_text}, request.stops));
  if (job_->grammar) job_->grammar->restart();
  for (std::size_t i = 0; i < n_tokens; ++i) {
    const Token token{.id = tokens_[prompt_tokens_ + i]};
    if (job_->grammar) TERRACE_RETURN_IF_ERROR(job_->grammar->accept(token.id));
    ++timings_.predicted_n;
    const text::StopMatcher::Output out = job_->output.push(token.id);
    job_->listener->on_piece({out.text, {&token, 1}}, timings_);
  }
  return {};
}

std::optional<EndReason> Run::add(std::int32_t token, std::string_view& text) {
  const bool ends_text = parts_.tokenizer.is_stop(token);
  if (ends_text && !job_->request.control_as_text) return EndReason::kEos;
  const text::StopMatcher::Output out = job_->output.push(token);
  text = out.text;
  has_new_line_ = has_new_line_ || text.find('\n') != std::string_view::npos;
  stopping_word_ = out.stop;
  if (out.stopped) return EndReason::kStop;
  if (ends_text) return EndReason::kEos;
  if (made() == job_->request.max_tokens) return EndReason::kLimit;
  if (tokens_.size() > parts_.context) return EndReason::kContext;
  if (job_->grammar && job_->grammar->must_end()) return EndReason::kEos;
  return std::nullopt;
}

void Run::end(EndReason reason, std::optional<std::uint32_t> slot, std::uint32_t stored_tokens) {
  if (made() == 0) timings_.prompt_ms = ms_between(started_, Clock::now());
  if (reason != EndReason::kStop) {
    if (const std::string_view rest = job_->output.finish().text; !rest.empty())
      job_->listener->on_piece({rest, {}}, timings_);
  }
  job_->listener->on_end({.reason = reason,
                          .stopping_word = stopping_word_,
                          .slot = slot,
                          .prompt_tokens = prompt_tokens_,
                          .stored_tokens = stored_tokens,
                          .timings = timings_});
}

void Run::fail(const Error& error) { job_->listener->on_error(error, timings_); }

void end_unstarted(Job& job, EndReason reason) {
  End end;
  end.reason = reason;
  end.prompt_tokens = static_cast<std::uint32_t>(job.request.prompt.size());
  end.timings.queue_ms = ms_between(job.submitted, Clock::now());
  job.listener->on_end(end);
}

}  // namespace terrace::serve
