#include "coordinator/serve/api/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace terrace::serve::api {
namespace {

constexpr std::size_t kMaxPrompts = 64;
constexpr std::string_view kForm = "a string, an array of token ids, both mixed, or an array of these";

bool is_mixed(const Json& value) {
  const auto is_token = [](const Json& item) { return item.is_number(); };
  return value.is_array() && !value.empty() && std::ranges::any_of(value, is_token) &&
         std::ranges::all_of(value, [&](const Json& item) { return is_token(item) || item.is_string(); });
}

Status add_text(const Json& item, const Context& context, Prompt& made) {
  const auto& text = item.get_ref<const std::string&>();
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                           context.tokenizer->encode(text, {.parse_special = true}));
  made.text += text;
  made.ids.insert(made.ids.end(), ids.begin(), ids.end());
  return {};
}

Status add_token(const Json& item, const Context& context, Prompt& made) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t id,
                           read_whole(item, 0, static_cast<std::int64_t>(context.tokenizer->size()) - 1));
  made.ids.push_back(static_cast<std::int32_t>(id));
  made.text += context.tokenizer->bytes(made.ids.back(), {});
  return {};
}

// BOS stands before a text, not before ids that somebody has made.
Result<Prompt> one_prompt(const Json& value, const Context& context) {
  Prompt made;
  if (!value.is_string() && !is_mixed(value)) return must_be(kForm, value);
  const bool begins_with_text = value.is_string() || value.front().is_string();
  if (begins_with_text && context.tokenizer->leading_bos()) made.ids.push_back(*context.tokenizer->leading_bos());
  if (value.is_string()) {
    TERRACE_RETURN_IF_ERROR(add_text(value, context, made));
    return made;
  }
  for (const Json& item : value)
    TERRACE_RETURN_IF_ERROR(item.is_string() ? add_text(item, context, made) : add_token(item, context, made));
  return made;
}

}  // namespace

std::optional<HttpError> make_text_prompts(const Ask& ask, const Context& context, std::vector<Prompt>& made) {
  if (ask.prompt == nullptr) return bad_field("prompt", "is required");
  const bool several = ask.prompt->is_array() && !is_mixed(*ask.prompt);
  const Json list = several ? *ask.prompt : Json::array({*ask.prompt});
  if (list.empty() || list.size() > kMaxPrompts)
    return bad_field("prompt", fmt::format("must have 1 to {} prompts; found {}", kMaxPrompts, list.size()));
  for (const Json& item : list) {
    auto prompt = one_prompt(item, context);
    if (!prompt.ok()) return bad_field("prompt", prompt.error());
    if (prompt->ids.empty()) return bad_field("prompt", "must have at least one token; found none");
    if (auto error = check_context(prompt->ids.size(), context)) return error;
    made.push_back(std::move(*prompt));
  }
  return std::nullopt;
}

Result<std::shared_ptr<const sampler::Grammar>> grammar_of_gbnf(const Context& context, std::string_view text) {
  return context.grammars != nullptr ? context.grammars->from_gbnf(text) : sampler::Grammar::from_gbnf(text);
}

Result<std::shared_ptr<const sampler::Grammar>> grammar_of_schema(const Context& context, std::string_view schema) {
  return context.grammars != nullptr ? context.grammars->from_json_schema(schema)
                                     : sampler::Grammar::from_json_schema(schema);
}

std::optional<HttpError> make_grammar(const Ask& ask, const Context& context,
                                      std::shared_ptr<const sampler::Grammar>& made) {
  const auto take = [&](std::string_view field, Result<std::shared_ptr<const sampler::Grammar>> grammar) {
    if (!grammar.ok()) return std::optional(bad_field(field, grammar.error().in("cannot be used")));
    made = std::move(*grammar);
    return std::optional<HttpError>();
  };
  if (ask.json_object) return take("response_format", grammar_of_schema(context, sampler::Grammar::kAnyObject));
  if (ask.grammar != nullptr)
    return take("grammar", grammar_of_gbnf(context, ask.grammar->get_ref<const std::string&>()));
  if (ask.json_schema == nullptr) return std::nullopt;
  const std::string_view field = find(*ask.body, "json_schema") != nullptr ? "json_schema"
                                 : ask.route == kOnResponses               ? "text"
                                                                           : "response_format";
  return take(field, grammar_of_schema(context, dump(*ask.json_schema)));
}

std::optional<HttpError> check_context(std::size_t n_prompt_tokens, const Context& context) {
  if (n_prompt_tokens < context.context_tokens) return std::nullopt;
  HttpError error{400, "exceed_context_size_error", {}, {}, n_prompt_tokens, context.context_tokens, false};
  error.message = fmt::format("request ({} tokens) exceeds the available context size ({} tokens), try increasing it",
                              n_prompt_tokens, context.context_tokens);
  return error;
}

}  // namespace terrace::serve::api
