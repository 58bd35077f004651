#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/conversation.h"
#include "coordinator/serve/api/prompt.h"

namespace terrace::serve::api {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Which of the fields that may say a thing has said it.
std::string_view given(const Ask& ask, std::initializer_list<std::string_view> fields) {
  for (const std::string_view field : fields)
    if (find(*ask.body, field) != nullptr) return field;
  return *fields.begin();
}

bool forced(const Ask& ask) {
  return ask.tool_choice == ToolChoice::kRequired || ask.tool_choice == ToolChoice::kNamed;
}

std::optional<HttpError> check_tools(const Ask& ask, const Context& context, const Conversation& conversation) {
  if (conversation.tools->empty())
    return forced(ask) ? std::optional(bad_field("tool_choice", "asks for a call, and there are no tools"))
                       : std::nullopt;
  if (ask.tool_choice == ToolChoice::kNamed && std::ranges::none_of(*conversation.tools, [&](const Json& t) {
        return t["function"]["name"] == Json(ask.tool_name);
      }))
    return bad_field("tool_choice", fmt::format("names \"{}\", which is none of the tools", ask.tool_name));
  if (ask.tool_choice == ToolChoice::kNone) return std::nullopt;
  const tool_calls::Family* family = tool_calls::find_family(context.chat_template_source);
  if (family == nullptr)
    return bad_field("tools", "cannot be used: the model writes tool calls in a form that this server does not read");
  if (!context.chat_template->reads("tools") && family->tell_tools == nullptr)
    return bad_field("tools", "cannot be used: the model's chat template does not know tools");
  return std::nullopt;
}

// ---- variables of the template

std::optional<HttpError> add_reasoning(const Ask& ask, const Context& context, Json& variables) {
  const text::jinja::Template& chat = *context.chat_template;
  if (ask.reasoning_effort) {
    if (!chat.reads("reasoning_effort"))
      return bad_field(given(ask, {"reasoning_effort", "reasoning"}),
                       "cannot be used: the model's chat template knows no effort");
    variables["reasoning_effort"] = *ask.reasoning_effort;
  }
  if (!ask.thinking) return std::nullopt;
  const bool thinks = context.chat_template_source.find("<think>") != std::string::npos;
  const bool has_switch = chat.reads("enable_thinking") || chat.reads("thinking");
  if (has_switch) {
    variables[chat.reads("enable_thinking") ? "enable_thinking" : "thinking"] = *ask.thinking;
  } else if (*ask.thinking != thinks) {
    return bad_field(
        given(ask, {"thinking", "reasoning_effort", "reasoning_budget", "thinking_budget_tokens", "reasoning"}),
        thinks ? "cannot turn reasoning off: the model's chat template has no switch for it"
               : "cannot turn reasoning on: the model's chat template knows none");
  }
  return std::nullopt;
}

std::optional<HttpError> add_arguments(const Ask& ask, const Context& context, Json& variables,
                                       std::vector<std::string>& said) {
  if (ask.template_arguments == nullptr) return std::nullopt;
  constexpr std::array kOurs{"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
  for (const auto& [name, value] : ask.template_arguments->items()) {
    if (std::ranges::count(kOurs, name) > 0)
      return bad_field("chat_template_kwargs", fmt::format("must not set {}", name));
    if (!context.chat_template->reads(name))
      return bad_field("chat_template_kwargs",
                       fmt::format("sets {}, which the model's chat template does not read", name));
    variables[name] = value;
    said.push_back(name);
  }
  return std::nullopt;
}

std::string special_text(const Context& context, std::optional<std::int32_t> id) {
  return id ? std::string(context.tokenizer->bytes(*id, {})) : "";
}

struct RenderedPrompt {
  std::string text;
  std::vector<text::TextRange> said;
};

std::optional<HttpError> render(const Ask& ask, const Context& context, Conversation& conversation,
                                bool generation_prompt, RenderedPrompt& made) {
  const bool with_tools = !conversation.tools->empty() && ask.tool_choice != ToolChoice::kNone;
  Json tools = with_tools ? *conversation.tools : Json();
  const tool_calls::Family* family = tool_calls::find_family(context.chat_template_source);
  if (!context.chat_template->reads("tools") && family != nullptr && family->tell_tools != nullptr) {
    family->tell_tools(*conversation.messages, with_tools ? tools : Json::array());
    tools = nullptr;
  }
  Json variables{{"messages", std::move(*conversation.messages)},
                 {"tools", std::move(tools)},
                 {"add_generation_prompt", generation_prompt},
                 {"bos_token", special_text(context, context.tokenizer->bos())},
                 {"eos_token", special_text(context, context.tokenizer->eos())}};
  text::jinja::RenderOptions options;
  options.now = context.local_time();
  options.said = {"messages", "tools"};
  if (auto error = add_reasoning(ask, context, variables)) return error;
  if (auto error = add_arguments(ask, context, variables, options.said)) return error;
  auto rendered = context.chat_template->render(variables, options);
  if (!rendered.ok())
    return bad_field(ask.route == kOnResponses ? "input" : "messages",
                     rendered.error().in("cannot be written as the model's chat template wants it"));
  made.text = std::move(rendered->text);
  for (const auto& range : rendered->said) made.said.push_back({range.begin, range.end});
  return std::nullopt;
}

// ---- the end of the prompt

// The text of a last message of the assistant that the reply goes on from, taken out of the messages.
std::optional<HttpError> take_final(const Ask& ask, Json& messages, std::optional<std::string>& final) {
  const bool can =
      !messages.empty() && messages.back()["role"] == Json("assistant") && !messages.back().contains("tool_calls");
  if (ask.continue_final_message.value_or(false) && !can)
    return bad_field("continue_final_message", "needs a last message of the assistant without tool calls");
  if (!can || !ask.continue_final_message.value_or(ask.generation_prompt)) return std::nullopt;
  final = messages.back()["content"].get<std::string>();
  messages.erase(messages.size() - 1);
  return std::nullopt;
}

bool ends_with_mark(std::string_view text, std::string_view mark) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1).ends_with(mark);
}

bool is_control_token(const Context& context, std::string_view mark) {
  const auto ids = context.tokenizer->encode(mark, {.parse_special = true});
  return ids.ok() && ids->size() == 1 && context.tokenizer->bytes(ids->front(), {.special = false}).empty();
}

// How the reply is read, and what the prompt's end must say so that it can begin as the request wants it: with a call,
// or with constrained text and no thought before it.
void end_prompt(const Ask& ask, const Context& context, bool tools, bool continues, RenderedPrompt& prompt,
                ChatPrompt& made) {
  const tool_calls::Family* family = tool_calls::find_family(context.chat_template_source);
  ReplyForm& form = made.form;
  form.family = family != nullptr ? family : &tool_calls::plain_family();
  const tool_calls::Family& marks = *form.family;
  const bool open_thought = !continues && ends_with_mark(prompt.text, marks.think);
  const bool constrained = made.grammar != nullptr;
  if (open_thought && constrained) prompt.text += fmt::format("\n{}\n\n", marks.think_end);
  form.parser = {
      .tools = tools, .reasoning = ask.split_reasoning && !continues, .in_reasoning = open_thought && !constrained};
  if (forced(ask)) {
    form.begun = fmt::format("{}\n", marks.call);
    prompt.text += form.begun;
  }
  form.control_as_text = (tools && is_control_token(context, marks.call)) ||
                         (form.parser.reasoning && is_control_token(context, marks.think));
}

// ---- the grammar of a forced call

// References within a tool's schema, as seen from the root of the schema that holds it.
void move_references(Json& schema, const std::string& root) {
  if (schema.is_array()) {
    for (Json& item : schema) move_references(item, root);
  } else if (schema.is_object()) {
    for (auto& [key, value] : schema.items()) {
      if (key == "$ref" && value.is_string() && value.get_ref<const std::string&>().starts_with("#")) {
        value = root + value.get<std::string>().substr(1);
      } else {
        move_references(value, root);
      }
    }
  }
}

Json call_schema(const Json& tool, const std::string& root) {
  Json arguments = tool["function"]["parameters"];
  move_references(arguments, root + "/properties/arguments");
  return {
      {"type", "object"},
      {"properties", Json{{"name", Json{{"const", tool["function"]["name"]}}}, {"arguments", std::move(arguments)}}},
      {"required", {"name", "arguments"}},
      {"additionalProperties", false}};
}

std::optional<HttpError> make_call_grammar(const Ask& ask, const Context& context, const Json& tools,
                                           std::shared_ptr<const sampler::Grammar>& made) {
  Json choices = Json::array();
  for (const Json& tool : tools)
    if (ask.tool_choice == ToolChoice::kRequired || tool["function"]["name"] == Json(ask.tool_name))
      choices.push_back(call_schema(tool, tools.size() == 1 || ask.tool_choice == ToolChoice::kNamed
                                              ? "#"
                                              : fmt::format("#/anyOf/{}", choices.size())));
  const Json schema = choices.size() == 1 ? choices.front() : Json{{"anyOf", choices}};
  auto grammar = grammar_of_schema(context, dump(schema));
  if (!grammar.ok()) return bad_field("tools", grammar.error().in("cannot be forced"));
  made = std::move(*grammar);
  return std::nullopt;
}

std::optional<HttpError> make_chat_grammar(const Ask& ask, const Context& context, const Conversation& conversation,
                                           ChatPrompt& made) {
  if (auto error = make_grammar(ask, context, made.grammar)) return error;
  const bool may_call = !conversation.tools->empty() && ask.tool_choice != ToolChoice::kNone;
  if (made.grammar != nullptr && may_call)
    return bad_field(
        given(ask, {"tools", "tool_choice"}),
        "excludes grammars and response formats, which leave no room for calls; or set tool_choice to none");
  if (!forced(ask)) return std::nullopt;
  return make_call_grammar(ask, context, *conversation.tools, made.grammar);
}

}  // namespace

std::optional<HttpError> make_chat_prompt(const Ask& ask, const Context& context, ChatPrompt& made) {
  Conversation conversation;
  if (auto error = read_conversation(ask, conversation)) return error;
  if (context.chat_template == nullptr)
    return HttpError{501, "not_supported_error", context.no_template, {}, {}, {}, false, false};
  if (auto error = check_tools(ask, context, conversation)) return error;
  if (auto error = make_chat_grammar(ask, context, conversation, made)) return error;

  std::optional<std::string> final;
  if (auto error = take_final(ask, *conversation.messages, final)) return error;
  const bool tools = !conversation.tools->empty() && ask.tool_choice != ToolChoice::kNone;
  RenderedPrompt prompt;
  if (auto error = render(ask, context, conversation, final.has_value() || ask.generation_prompt, prompt)) return error;
  if (final && !final->empty()) {
    prompt.said.push_back({prompt.text.size(), prompt.text.size() + final->size()});
    prompt.text += *final;
  }
  end_prompt(ask, context, tools, final.has_value(), prompt, made);

  auto ids = context.tokenizer->encode(prompt.text, {.parse_special = true, .plain = prompt.said});
  if (!ids.ok()) return to_http(ids.error());
  const auto bos = context.tokenizer->leading_bos();
  if (bos && (ids->empty() || ids->front() != *bos)) ids->insert(ids->begin(), *bos);
  made.prompt = {std::move(prompt.text), std::move(*ids)};
  return std::nullopt;
}

}  // namespace terrace::serve::api
