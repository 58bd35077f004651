// What answers of several APIs are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/api/ask.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/api/json_text.h"
#include "coordinator/serve/scheduler/request.h"

namespace terrace::serve::api {

// llama-server's: cache_n, prompt_n, prompt_ms, prompt_per_token_ms, prompt_per_second, predicted_...
Json timings_json(const Timings& timings);

// OpenAI's: completion_tokens, prompt_tokens, total_tokens, prompt_tokens_details; completion_tokens_details where
// there was reasoning.
struct Usage {
  std::uint64_t prompt = 0;
  std::uint64_t cached = 0;
  std::uint64_t completion = 0;
  std::uint64_t reasoning = 0;  // of them
};
Json usage_json(const Usage& usage);

// [{"id", "token", "bytes", "logprob", "top_logprobs"}]; at most n_top candidates each.
Json probabilities_json(const std::vector<sampler::Logprobs>& tokens, std::uint32_t n_top,
                        const text::Tokenizer& tokenizer);

// What llama-server's answers tell of how they were made. `seed` as it was used. of_server: /props and /slots, which
// leave the lists out.
Json generation_settings(const Ask& ask, std::uint64_t seed, bool of_server);

// An event of a stream: "data: JSON\n\n", or with a name "event: NAME\ndata: JSON\n\n".
std::string event(const Json& data);
std::string event(std::string_view name, const Json& data);
inline constexpr std::string_view kDone = "data: [DONE]\n\n";

// `prefix` and `n` letters and digits.
std::string random_id(std::string_view prefix, std::size_t n, const Context& context);

}  // namespace terrace::serve::api
