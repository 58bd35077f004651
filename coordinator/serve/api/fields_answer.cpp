#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/field_row.h"

namespace terrace::serve::api {
namespace {

constexpr std::uint32_t kGenerating = kOnChat | kOnText | kOnCompletion | kOnResponses | kOnMessages;
constexpr std::uint32_t kLlama = kOnChat | kOnText | kOnCompletion;
constexpr std::uint32_t kMaxProbs = 100;       // of llama-server's n_probs
constexpr std::uint32_t kMaxTopLogprobs = 20;  // as OpenAI has it
constexpr std::size_t kMaxResponseFields = 64;

template <bool Ask::*Member>
Status flag(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(ask.*Member, read_bool(value));
  return {};
}

Status choices(const Json& value, Ask& ask, const Context& context) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, 1, context.n_slots));
  if (ask.n && *ask.n != found) return Error(ErrorCode::kInvalidArgument, "contradicts the other of n and n_cmpl");
  ask.n = static_cast<std::uint32_t>(found);
  return {};
}

Status stream_options(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"include_usage", "include_obfuscation"}));
  if (const Json* usage = find(value, "include_usage")) {
    TERRACE_ASSIGN_OR_RETURN(ask.include_usage, read_bool(*usage));
  }
  const Json* obfuscation = find(value, "include_obfuscation");
  if (obfuscation != nullptr && *obfuscation != Json(false))
    return Error(ErrorCode::kInvalidArgument, "include_obfuscation must be false: streams are not padded");
  return {};
}

Status set_probs(const Json& value, std::uint32_t most, Ask& ask) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, 0, most));
  ask.n_probs = std::max(ask.n_probs, static_cast<std::uint32_t>(found));
  return {};
}
Status n_probs(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(set_probs(value, kMaxProbs, ask));
  ask.logprobs = ask.logprobs || ask.n_probs > 0;
  return {};
}
// Without logprobs, it is read_fields() that refuses: the order of fields must not matter.
Status top_logprobs(const Json& value, Ask& ask, const Context&) { return set_probs(value, kMaxTopLogprobs, ask); }
Status text_logprobs(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(set_probs(value, kMaxTopLogprobs, ask));
  ask.logprobs = true;
  return {};
}

Status slot(const Json& value, Ask& ask, const Context& context) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, -1, std::int64_t{context.n_slots} - 1));
  if (found >= 0) ask.slot = static_cast<std::uint32_t>(found);
  return {};
}

// Of the last object of /completion.
constexpr std::string_view kFinalFields[] = {"index",
                                             "content",
                                             "tokens",
                                             "id_slot",
                                             "stop",
                                             "model",
                                             "tokens_predicted",
                                             "tokens_evaluated",
                                             "prompt",
                                             "has_new_line",
                                             "truncated",
                                             "stop_type",
                                             "stopping_word",
                                             "tokens_cached",
                                             "timings",
                                             "generation_settings",
                                             "completion_probabilities"};

Status response_fields(const Json& value, Ask& ask, const Context&) {
  if (!value.is_array() || value.size() > kMaxResponseFields)
    return must_be(fmt::format("an array of at most {} names", kMaxResponseFields), value);
  for (const Json& item : value) {
    TERRACE_ASSIGN_OR_RETURN(std::string name, read_string(item));
    if (std::ranges::count(kFinalFields, std::string_view(name).substr(0, name.find('/'))) == 0)
      return Error(ErrorCode::kInvalidArgument, fmt::format("names {}, which the answer does not have", shown(item)));
    ask.response_fields.push_back(std::move(name));
  }
  return {};
}

Status ping_interval(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, -1, 30));
  if (found != 30 && found > 0)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("must be 30 (pings at least so often), 0 or -1 (none); found {}", found));
  ask.ping = found == 30;
  return {};
}

Status response_format(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"type", "json_schema", "schema", "name", "strict", "description"}));
  const Json* type = find(value, "type");
  if (type == nullptr) return Error(ErrorCode::kInvalidArgument, "must have a type: text, json_object or json_schema");
  TERRACE_ASSIGN_OR_RETURN(const std::string kind, read_choice(*type, {"text", "json_object", "json_schema"}));
  const Json* wrapped = find(value, "json_schema");
  if (kind == "text") return {};
  if (kind == "json_object" && find(value, "schema") == nullptr) {
    ask.json_object = true;
    return {};
  }
  if (wrapped != nullptr) TERRACE_RETURN_IF_ERROR(check_keys(*wrapped, {"name", "description", "schema", "strict"}));
  ask.json_schema = find(wrapped != nullptr ? *wrapped : value, "schema");
  if (ask.json_schema == nullptr || !ask.json_schema->is_object())
    return Error(ErrorCode::kInvalidArgument, "of type json_schema must have an object json_schema.schema");
  return {};
}

// Responses: {"format": ..., "verbosity": "medium"}.
Status text_options(const Json& value, Ask& ask, const Context& context) {
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"format", "verbosity"}));
  const Json* verbosity = find(value, "verbosity");
  if (verbosity != nullptr && *verbosity != Json("medium"))
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("verbosity must be \"medium\": the model has no such setting; found {}", shown(*verbosity)));
  const Json* format = find(value, "format");
  return format == nullptr ? Status{} : response_format(*format, ask, context);
}

constexpr ReadableRow honoured(std::string_view name, std::uint32_t routes, auto read, std::string_view note) {
  return {{name, routes, FieldKind::kHonoured, note}, read};
}

const ReadableRow kRows[] = {
    honoured("stream", kGenerating, flag<&Ask::stream>, "text/event-stream; false"),
    honoured("stream_options", kOnChat | kOnText, stream_options, "{\"include_usage\": true}"),
    honoured("return_progress", kOnChat | kOnCompletion, flag<&Ask::return_progress>,
             "streams tell how much of the prompt is done; false"),
    honoured("timings_per_token", kLlama, flag<&Ask::timings_per_token>, "timings in each chunk; false"),
    honoured("return_tokens", kOnCompletion, flag<&Ask::return_tokens>, "the ids of the answer's tokens; false"),
    honoured("n", kOnChat | kOnText, choices, "choices, 1 to the number of slots"),
    honoured("n_cmpl", kLlama, choices, "the same"),
    honoured("n_probs", kLlama, n_probs, "0 to 100 candidates with each token; 0"),
    honoured("logprobs", kOnChat, flag<&Ask::logprobs>, "false"),
    honoured("top_logprobs", kOnChat, top_logprobs, "0 to 20; needs logprobs"),
    honoured("logprobs", kOnText, text_logprobs, "0 to 20 candidates with each token"),
    honoured("echo", kOnText, flag<&Ask::echo>, "the prompt begins the text; false"),
    honoured("response_fields", kOnCompletion, response_fields, "which fields of the last object are wanted"),
    honoured("cache_prompt", kLlama, flag<&Ask::cache_prompt>, "computed prefixes are used again; true"),
    honoured("id_slot", kLlama, slot, "waits for this slot; -1: any"),
    honoured("sse_ping_interval", kLlama, ping_interval, "30; 0 and -1: no pings"),
    honoured("response_format", kOnChat | kOnText | kOnCompletion, response_format, "text, json_object or json_schema"),
    honoured("text", kOnResponses, text_options, "{\"format\": as response_format, \"verbosity\": \"medium\"}"),
};

}  // namespace

std::span<const ReadableRow> answer_rows() { return kRows; }

}  // namespace terrace::serve::api
