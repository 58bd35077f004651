#include <limits>

#include "coordinator/serve/api/field_row.h"

namespace terrace::serve::api {
namespace {

constexpr std::uint32_t kOpenAi = kOnChat | kOnText | kOnResponses;
constexpr std::uint32_t kEvery = std::numeric_limits<std::uint32_t>::max();

const ReadableRow kRows[] = {
    accepted("model", kEvery, "the model that is loaded answers, and answers name it"),
    accepted("user", kGenerating | kAnthropicFields, "asks for no behaviour"),
    accepted("metadata", kGenerating & ~kOnResponses, "asks for no behaviour"),
    accepted("store", kGenerating, "nothing is stored"),
    accepted("service_tier", kGenerating, "there is one"),
    accepted("safety_identifier", kGenerating, "asks for no behaviour"),
    accepted("prompt_cache_key", kGenerating, "prefixes are found by themselves"),
    accepted("cache_control", kAnthropicFields, "prefixes are found by themselves"),

    neutral("modalities", kOnChat, R"([["text"]])"),
    neutral("verbosity", kOnChat, R"(["medium"])"),
    neutral("best_of", kOnText, "[1]"),
    neutral("suffix", kOnText, R"([""])"),
    neutral("stream_options", kOnResponses, R"([{}, {"include_obfuscation": false}])"),
    neutral("background", kOnResponses, "[false]"),
    neutral("include", kOnResponses, "[[]]"),
    neutral("top_logprobs", kOnResponses, "[0]"),
    neutral("truncation", kOnResponses, R"(["disabled"])"),
    neutral("mcp_servers", kAnthropicFields, "[[]]"),
    neutral("image_data", kLlamaFields, "[[]]"),
    neutral("lora", kLlamaFields, "[[]]"),
    neutral("speculative.types", kLlamaFields, R"(["none"])"),
    neutral("speculative.n_max", kLlamaFields, "[0]"),
    neutral("speculative.n_min", kLlamaFields, "[0]"),
    neutral("speculative.p_min", kLlamaFields, "[0]"),
    neutral("thinking_forced_open", kOnChat, "[false]"),
    neutral("parse_tool_calls", kOnChat, "[true]"),

    refused("audio", kOnChat, "the model makes text only"),
    refused("function_call", kOnChat, "use tool_choice"),
    refused("functions", kOnChat, "use tools"),
    refused("prediction", kOnChat, "there is no use of predicted outputs here"),
    refused("web_search_options", kOnChat, "this server reaches no network"),
    refused("moderation", kOpenAi, "there is no moderation here"),
    refused("prompt_cache_retention", kOpenAi, "how long prefixes are kept is the server's setting"),
    refused("chat_template", kOnChat | kOnApplyTemplate, "the model's own template is used"),
    refused("system_prompt", kLlamaFields, "put it into the prompt"),
    refused("conversation", kOnResponses, "nothing is stored: send the whole input"),
    refused("previous_response_id", kOnResponses, "nothing is stored: send the whole input"),
    refused("prompt", kOnResponses, "there are no stored prompts: use input and instructions"),
    refused("context_management", kOnResponses | kAnthropicFields, "a context that is full is an error"),
    refused("max_tool_calls", kOnResponses, "this server calls no tools"),
    refused("container", kAnthropicFields, "this server runs no code"),
    refused("inference_geo", kAnthropicFields, "there is one place"),
    refused("output_config", kAnthropicFields,
            "use another route for schemas: /v1/chat/completions with response_format"),
    refused("output_format", kAnthropicFields,
            "use another route for schemas: /v1/chat/completions with response_format"),
};

}  // namespace

std::span<const ReadableRow> accepted_rows() { return kRows; }

}  // namespace terrace::serve::api
