// What the fields of one request say, read and checked, before anything is made of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/api/context.h"
#include "coordinator/serve/api/field_table.h"
#include "coordinator/serve/api/json_text.h"
#include "coordinator/serve/api/reply.h"
#include "coordinator/serve/scheduler/request.h"

namespace terrace::serve::api {

enum class ToolChoice { kAuto, kNone, kRequired, kNamed };

struct Ask {
  RouteBit route = kOnCompletion;
  std::shared_ptr<const Json> body;  // what the pointers below look into

  // Sampling.
  sampler::SamplingOptions sampling;
  bool random_seed = true;
  std::vector<sampler::LogitBias> logit_bias;
  std::vector<std::string> stops;
  std::optional<std::uint64_t> max_tokens;
  std::string max_tokens_field;  // which of its names gave it
  std::optional<std::uint32_t> max_predict_ms;
  bool ignore_eos = false;

  // What comes back, and how.
  std::optional<std::uint32_t> n;  // choices; 1
  bool stream = false, include_usage = false, ping = true;
  bool return_progress = false, timings_per_token = false, return_tokens = false, echo = false;
  bool logprobs = false;
  std::uint32_t n_probs = 0;  // candidates per token
  std::vector<std::string> response_fields;

  // Where.
  bool cache_prompt = true;
  std::optional<std::uint32_t> slot;

  // Constraints: at most one.
  const Json* grammar = nullptr;      // a string
  const Json* json_schema = nullptr;  // any JSON
  bool json_object = false;

  // Text.
  const Json* prompt = nullptr;
  const Json* messages = nullptr;      // of chat, Anthropic's likewise
  const Json* system = nullptr;        // Anthropic
  const Json* input = nullptr;         // Responses
  const Json* instructions = nullptr;  // Responses
  const Json* tools = nullptr;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;  // with kNamed
  bool parallel_tool_calls = true;
  const Json* template_arguments = nullptr;  // chat_template_kwargs
  std::optional<std::string> reasoning_effort;
  std::optional<bool> thinking;
  bool split_reasoning = true;
  bool generation_prompt = true;
  std::optional<bool> continue_final_message;

  // tokenize, detokenize, slots.
  const Json* content = nullptr;
  const Json* tokens = nullptr;
  bool add_special = false, parse_special = true, with_pieces = false;
  std::string file_name;

  // Told back by /v1/responses.
  const Json* metadata = nullptr;
};

// Reads every field of `body` by the table. On refusal `ask` is in no particular state.
std::optional<HttpError> read_fields(RouteBit route, std::string_view body, const Context& context, Ask& ask);

// A 400 that names a field.
HttpError bad_field(std::string_view field, std::string_view why);
inline HttpError bad_field(std::string_view field, const Error& why) { return bad_field(field, why.text()); }

}  // namespace terrace::serve::api
