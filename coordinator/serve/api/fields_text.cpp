#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coordinator/serve/api/field_row.h"

namespace terrace::serve::api {
namespace {

constexpr std::uint32_t kPrompts = kOnText | kOnCompletion;
constexpr std::uint32_t kChats = kOnChat | kOnApplyTemplate;
constexpr std::uint32_t kTemplated = kChats | kAnthropicFields | kOnResponses;
constexpr std::size_t kMaxItems = 10'000;  // messages, tools

template <bool Ask::*Member>
Status flag(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(ask.*Member, read_bool(value));
  return {};
}

// Kept as it is: what reads it later says what is wrong within.
template <const Json* Ask::*Member>
Status keep(const Json& value, Ask& ask, const Context&) {
  ask.*Member = &value;
  return {};
}
template <const Json* Ask::*Member>
Status keep_array(const Json& value, Ask& ask, const Context&) {
  if (!value.is_array() || value.size() > kMaxItems)
    return must_be(fmt::format("an array of at most {}", kMaxItems), value);
  ask.*Member = &value;
  return {};
}
template <const Json* Ask::*Member>
Status keep_object(const Json& value, Ask& ask, const Context&) {
  if (!value.is_object()) return must_be("an object", value);
  ask.*Member = &value;
  return {};
}
template <const Json* Ask::*Member>
Status keep_string(const Json& value, Ask& ask, const Context&) {
  if (!value.is_string()) return must_be("a string", value);
  ask.*Member = &value;
  return {};
}

Status set_choice(std::string_view kind, Ask& ask) {
  ask.tool_choice = kind == "none"                        ? ToolChoice::kNone
                    : kind == "required" || kind == "any" ? ToolChoice::kRequired
                                                          : ToolChoice::kAuto;
  return {};
}

Status set_named(const Json* name, Ask& ask) {
  if (name == nullptr || !name->is_string())
    return Error(ErrorCode::kInvalidArgument, "names no tool: the name must be a string");
  ask.tool_choice = ToolChoice::kNamed;
  ask.tool_name = name->get<std::string>();
  return {};
}

// "auto", or {"type": "function", "function": {"name": N}}, or (Responses) {"type": "function", "name": N}.
Status tool_choice(const Json& value, Ask& ask, const Context&) {
  if (value.is_string()) {
    TERRACE_ASSIGN_OR_RETURN(const std::string kind, read_choice(value, {"auto", "none", "required"}));
    return set_choice(kind, ask);
  }
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"type", "function", "name"}));
  const Json* type = find(value, "type");
  if (type == nullptr || *type != Json("function"))
    return must_be("\"auto\", \"none\", \"required\" or an object of type \"function\"",
                   type == nullptr ? value : *type);
  const Json* function = find(value, "function");
  return set_named(find(function != nullptr ? *function : value, "name"), ask);
}

// Anthropic: {"type": "auto"|"any"|"tool"|"none", "name": N, "disable_parallel_tool_use": B}.
Status anthropic_tool_choice(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"type", "name", "disable_parallel_tool_use"}));
  const Json* type = find(value, "type");
  if (type == nullptr) return Error(ErrorCode::kInvalidArgument, "must have a type: auto, any, tool or none");
  TERRACE_ASSIGN_OR_RETURN(const std::string kind, read_choice(*type, {"auto", "any", "tool", "none"}));
  if (const Json* one = find(value, "disable_parallel_tool_use")) {
    TERRACE_ASSIGN_OR_RETURN(const bool alone, read_bool(*one));
    ask.parallel_tool_calls = !alone;
  }
  return kind == "tool" ? set_named(find(value, "name"), ask) : set_choice(kind, ask);
}

Status set_effort(const Json& value, Ask& ask) {
  const auto effort = read_choice(value, {"none", "minimal", "low", "medium", "high", "xhigh"});
  if (!effort.ok()) return effort.error();
  if (*effort == "none") {
    ask.thinking = false;
  } else {
    ask.reasoning_effort = *effort;
  }
  return {};
}
Status reasoning_effort(const Json& value, Ask& ask, const Context&) { return set_effort(value, ask); }

// Responses: {"effort": E}. A summary of the reasoning would need a second model.
Status reasoning(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"effort", "summary", "generate_summary"}));
  for (const char* key : {"summary", "generate_summary"})
    if (const Json* summary = find(value, key); summary != nullptr && *summary != Json("auto"))
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} must be \"auto\" or null: the reasoning itself is given, never a summary", key));
  const Json* effort = find(value, "effort");
  return effort == nullptr ? Status{} : set_effort(*effort, ask);
}

// Tokens of reasoning: all or none, since nothing here ends a thought in its middle.
Status reasoning_budget(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, -1, static_cast<std::int64_t>(kMaxWhole)));
  if (found > 0)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("must be -1 (no limit) or 0 (no reasoning): a thought cannot be cut; found {}", found));
  if (found == 0) ask.thinking = false;
  return {};
}

// Anthropic: {"type": "enabled"|"disabled"|"adaptive", "budget_tokens": N}.
Status thinking(const Json& value, Ask& ask, const Context&) {
  TERRACE_RETURN_IF_ERROR(check_keys(value, {"type", "budget_tokens", "display"}));
  const Json* type = find(value, "type");
  if (type == nullptr) return Error(ErrorCode::kInvalidArgument, "must have a type: enabled, disabled or adaptive");
  TERRACE_ASSIGN_OR_RETURN(const std::string kind, read_choice(*type, {"enabled", "disabled", "adaptive"}));
  if (find(value, "budget_tokens") != nullptr)
    return Error(ErrorCode::kInvalidArgument, "budget_tokens is not supported: a thought cannot be cut; leave it out");
  if (find(value, "display") != nullptr)
    return Error(ErrorCode::kInvalidArgument, "display is not supported: the reasoning is given as it is");
  if (kind != "adaptive") ask.thinking = kind == "enabled";
  return {};
}

Status reasoning_format(const Json& value, Ask& ask, const Context&) {
  const auto format = read_choice(value, {"auto", "deepseek", "none"});
  if (!format.ok()) return format.error();
  ask.split_reasoning = *format != "none";
  return {};
}

Status continue_final(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(ask.continue_final_message, read_bool(value));
  return {};
}

// A plain name: it is looked for below one folder, whatever stands in it.
Status file_name(const Json& value, Ask& ask, const Context&) {
  constexpr std::size_t kMaxName = 200;
  TERRACE_ASSIGN_OR_RETURN(ask.file_name, read_string(value));
  const bool plain = !ask.file_name.empty() && ask.file_name.size() <= kMaxName && ask.file_name.front() != '.' &&
                     ask.file_name.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string::npos;
  if (plain) return {};
  return must_be("a plain file name: letters, digits, '.', '_', '-', not beginning with '.'", value);
}

const ReadableRow kRows[] = {
    honoured("prompt", kPrompts, keep<&Ask::prompt>, "a string, token ids, both mixed, or an array of these"),
    honoured("messages", kTemplated & ~kOnResponses, keep_array<&Ask::messages>, "text only"),
    honoured("system", kAnthropicFields, keep<&Ask::system>, "a string or text blocks"),
    honoured("input", kOnResponses, keep<&Ask::input>,
             "a string, or items: message, function_call, "
             "function_call_output, reasoning"),
    honoured("instructions", kOnResponses, keep_string<&Ask::instructions>, "a system message"),
    honoured("tools", kTemplated, keep_array<&Ask::tools>, "functions only"),
    honoured("tool_choice", kChats | kOnResponses, tool_choice, "auto, none, required, or a function by name"),
    honoured("tool_choice", kAnthropicFields, anthropic_tool_choice, "of type auto, any, tool or none"),
    honoured("parallel_tool_calls", kChats | kOnResponses, flag<&Ask::parallel_tool_calls>, "true"),
    honoured("chat_template_kwargs", kTemplated, keep_object<&Ask::template_arguments>, "variables of the template"),
    honoured("reasoning_effort", kChats, reasoning_effort, "where the template knows it; none: no reasoning"),
    honoured("reasoning", kOnResponses, reasoning, "{\"effort\": as reasoning_effort}"),
    honoured("thinking", kAnthropicFields, thinking, "of type enabled, disabled or adaptive, without a budget"),
    honoured("reasoning_budget", kChats, reasoning_budget, "-1 or 0"),
    honoured("thinking_budget_tokens", kChats, reasoning_budget, "-1 or 0"),
    honoured("reasoning_format", kChats, reasoning_format,
             "auto and deepseek: reasoning_content; none: left in content"),
    honoured("add_generation_prompt", kChats, flag<&Ask::generation_prompt>, "true"),
    honoured("continue_final_message", kChats, continue_final,
             "whether a last message of the assistant is continued; true where there is one"),
    honoured("metadata", kOnResponses, keep_object<&Ask::metadata>, "told back"),
    honoured("content", kOnTokenize, keep_string<&Ask::content>, "the text"),
    honoured("add_special", kOnTokenize, flag<&Ask::add_special>, "BOS and EOS where the model has them; false"),
    honoured("parse_special", kOnTokenize, flag<&Ask::parse_special>, "control tokens are found in the text; true"),
    honoured("with_pieces", kOnTokenize, flag<&Ask::with_pieces>, "{\"id\", \"piece\"} for each token; false"),
    honoured("tokens", kOnDetokenize, keep_array<&Ask::tokens>, "token ids"),
    honoured("filename", kOnSlots, file_name, "a plain name"),
};

}  // namespace

std::span<const ReadableRow> text_rows() { return kRows; }

}  // namespace terrace::serve::api
