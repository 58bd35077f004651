#include "coordinator/serve/api/generation.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/serve/api/answer_base.h"
#include "coordinator/serve/api/answer_parts.h"
#include "coordinator/serve/api/ask.h"
#include "coordinator/serve/api/prompt.h"

namespace terrace::serve::api {
namespace {

struct RouteForm {
  RouteBit bit;
  bool chat;
  std::unique_ptr<Answer> (*make)(AnswerSetup setup);
};

RouteForm form_of(Route route) {
  switch (route) {
    case Route::kChatCompletions:
      return {kOnChat, true, make_chat_answer};
    case Route::kTextCompletions:
      return {kOnText, false, make_text_answer};
    case Route::kResponses:
      return {kOnResponses, true, make_responses_answer};
    case Route::kMessages:
      return {kOnMessages, true, make_messages_answer};
    case Route::kCompletion:
      break;
  }
  return {kOnCompletion, false, make_completion_answer};
}

// What the prompts are, and what else they bring.
std::optional<HttpError> make_prompts(bool chat, const Context& context, AnswerSetup& setup,
                                      std::shared_ptr<const sampler::Grammar>& grammar) {
  if (!chat) {
    if (auto error = make_text_prompts(setup.ask, context, setup.prompts)) return error;
    return make_grammar(setup.ask, context, grammar);
  }
  ChatPrompt made;
  if (auto error = make_chat_prompt(setup.ask, context, made)) return error;
  if (auto error = check_context(made.prompt.ids.size(), context)) return error;
  setup.prompts.push_back(std::move(made.prompt));
  setup.form = std::move(made.form);
  grammar = std::move(made.grammar);
  return std::nullopt;
}

Request make_request(const AnswerSetup& setup, std::size_t index) {
  const Ask& ask = setup.ask;
  Request request;
  request.prompt = setup.prompts[index / ask.n.value_or(1)].ids;
  request.max_tokens = ask.max_tokens.value_or(kUnlimited);
  request.sampling = ask.sampling;
  request.sampling.seed = setup.seeds[index];
  request.logit_bias = ask.logit_bias;
  request.stops = ask.stops;
  request.ignore_eos = ask.ignore_eos;
  request.control_as_text = setup.form && setup.form->control_as_text;
  // The chosen token's own probability comes with at least one candidate.
  request.n_probs = ask.logprobs ? std::max(ask.n_probs, 1U) : 0;
  request.reuse_prefix = ask.cache_prompt;
  request.slot = ask.slot;
  request.streamed = ask.stream;
  request.progress = ask.stream && ask.return_progress;
  request.note = std::make_shared<const std::string>(dump(generation_settings(ask, request.sampling.seed, true)));
  return request;
}

// Each choice has its own seed, the first the request's: so that it can be asked for alone.
void make_seeds(const Context& context, AnswerSetup& setup) {
  constexpr std::uint64_t kShort = std::numeric_limits<std::uint32_t>::max();  // survives any client's numbers
  const std::uint32_t n = setup.ask.n.value_or(1);
  const std::uint64_t first = setup.ask.random_seed ? context.random() % kShort : setup.ask.sampling.seed;
  for (std::size_t i = 0; i < setup.prompts.size() * n; ++i) setup.seeds.push_back(first + i % n);
}

}  // namespace

ReadGeneration read_generation(Route route, std::string_view body, const Context& context,
                               std::string_view request_id) {
  const RouteForm form = form_of(route);
  const Dialect dialect = route == Route::kMessages ? Dialect::kAnthropic : Dialect::kOpenAi;
  AnswerSetup setup;
  setup.context = &context;
  setup.request_id = request_id;
  if (auto error = read_fields(form.bit, body, context, setup.ask))
    return {.generation = {}, .refusal = to_reply(*error, dialect, request_id)};
  std::shared_ptr<const sampler::Grammar> grammar;
  if (auto error = make_prompts(form.chat, context, setup, grammar))
    return {.generation = {}, .refusal = to_reply(*error, dialect, request_id)};
  make_seeds(context, setup);

  Generation generation;
  for (std::size_t i = 0; i < setup.seeds.size(); ++i) {
    generation.requests.push_back(make_request(setup, i));
    generation.requests.back().grammar = grammar;
  }
  generation.stream = setup.ask.stream;
  generation.ping = setup.ask.ping;
  generation.answer = form.make(std::move(setup));
  return {.generation = std::move(generation), .refusal = {}};
}

}  // namespace terrace::serve::api
