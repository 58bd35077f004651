// From what a request says to what the scheduler is given: token ids, and a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/serve/api/ask.h"
#include "coordinator/serve/tool_calls/registry/registry.h"

namespace terrace::serve::api {

struct Prompt {
  std::string text;  // as it is shown: what was given, or what the template made
  std::vector<std::int32_t> ids;
};

// How the reply to a chat is to be read.
struct ReplyForm {
  const tool_calls::Family* family = nullptr;
  tool_calls::ParserOptions parser;
  std::string begun;             // what the prompt's end has begun of the reply: the parser is given it first
  bool control_as_text = false;  // the family's marks are control tokens, which must appear in the text
};

struct ChatPrompt {
  Prompt prompt;
  ReplyForm form;
  std::shared_ptr<const sampler::Grammar> grammar;  // of a call that is forced, or of the request's constraint
};

// Of the routes with messages or input. Names the field that is wrong, or 501 where the model has no chat template.
std::optional<HttpError> make_chat_prompt(const Ask& ask, const Context& context, ChatPrompt& made);

// Of /completion and /v1/completions: one, or several from an array.
std::optional<HttpError> make_text_prompts(const Ask& ask, const Context& context, std::vector<Prompt>& made);

// Of grammar, json_schema and response_format; null: none was asked for.
std::optional<HttpError> make_grammar(const Ask& ask, const Context& context,
                                      std::shared_ptr<const sampler::Grammar>& made);

// From the context's cache where it has one. Errors as sampler::Grammar's.
Result<std::shared_ptr<const sampler::Grammar>> grammar_of_gbnf(const Context& context, std::string_view text);
Result<std::shared_ptr<const sampler::Grammar>> grammar_of_schema(const Context& context, std::string_view schema);

// exceed_context_size_error where the prompt leaves no room for a token.
std::optional<HttpError> check_context(std::size_t n_prompt_tokens, const Context& context);

}  // namespace terrace::serve::api
