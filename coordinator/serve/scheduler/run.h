// One request while it has a slot: its tokens so far, how the next one is chosen, and what its listener hears.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/sampler/logprobs.h"
#include "coordinator/sampler/sampler.h"
#include "coordinator/serve/scheduler/job.h"
#include "coordinator/text/tokenizer.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::serve {

// What all runs of a scheduler share; borrowed.
struct RunParts {
  const text::Tokenizer& tokenizer;
  const kernels::Ops& ops;
  std::uint32_t vocabulary = 0;  // logits a row
  std::uint32_t context = 0;
};

// One owner thread, the scheduler's; choose() may run on another one while the owner waits. After construction nothing
// is allocated but what a listener allocates, and sequences longer than kTokensSetAside.
class Run {
 public:
  static constexpr std::uint64_t kTokensSetAside = std::uint64_t{1} << 16;

  Run(std::unique_ptr<Job> job, const RunParts& parts, Clock::time_point now);

  RequestId id() const { return job_->id; }
  const Request& request() const { return job_->request; }
  bool makes_tokens() const { return job_->request.max_tokens > 0; }
  // Prompt and what was made; the last one is not computed yet.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::vector<std::int32_t> take_tokens() { return std::move(tokens_); }
  std::uint32_t prompt_tokens() const { return prompt_tokens_; }
  bool has_new_line() const { return has_new_line_; }
  std::uint64_t made() const { return timings_.predicted_n; }
  std::uint32_t cached() const { return timings_.cache_n; }
  Clock::time_point submitted() const { return job_->submitted; }
  // When the last token was made; before the first one, when a slot took the request.
  Clock::time_point last_event() const { return last_event_; }

  // The run's stream begins with so many tokens that others computed. What it computes again after it gave its memory
  // back counts for nobody: only the first call does anything.
  void begin(std::uint32_t cached, Clock::time_point now);
  // So many positions are stored.
  void prompt_went_on(std::uint32_t stored, Clock::time_point now);

  // Chooses the next token from its logits, and its log-probabilities. `largest`: the id of the largest logit, as
  // arch::StepResult has it. `memory`: nobody else's meanwhile.
  void choose(std::span<const float> logits, std::optional<std::int32_t> largest, sampler::SamplerMemory& memory);
  // Takes what choose() chose of step `step`: its piece goes to the listener. A reason: the run is over. Errors are
  // choose()'s.
  Result<std::optional<EndReason>> take_token(Clock::time_point now, std::uint64_t step);
  // The last step that made a token; 0: none did.
  std::uint64_t last_step() const { return made_in_.empty() ? 0 : made_in_.back(); }
  // What steps since `since` gave may be wrong, as `why` says: their tokens are forgotten, and the listener is told the
  // rest again. kUncertain: the request is streamed, and such tokens have been told; the run is as it was.
  Status roll_back(std::uint64_t since, const Error& why);

  // The last event; `slot`: empty where it never had one.
  void end(EndReason reason, std::optional<std::uint32_t> slot, std::uint32_t stored_tokens);
  void fail(const Error& error);

 private:
  Status tell_again(std::size_t n_tokens, const Error& why);
  Status try_choose(std::span<const float> logits, std::optional<std::int32_t> largest, sampler::SamplerMemory& memory);
  // The text that the token makes certain, and whether the run is over.
  std::optional<EndReason> add(std::int32_t token, std::string_view& text);

  std::unique_ptr<Job> job_;
  const RunParts& parts_;
  sampler::Sampler sampler_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint64_t> made_in_;  // the step of each token behind the prompt
  std::uint32_t prompt_tokens_;
  bool begun_ = false;
  Clock::time_point started_, first_token_, last_event_;
  Timings timings_;
  std::string_view stopping_word_;
  bool has_new_line_ = false;

  Token chosen_;
  Status choice_;  // choose()'s error
  sampler::Logprobs logprobs_;
};

// A request that never had a slot ends.
void end_unstarted(Job& job, EndReason reason);

}  // namespace terrace::serve
