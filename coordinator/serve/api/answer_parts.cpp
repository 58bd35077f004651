#include "coordinator/serve/api/answer_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace terrace::serve::api {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0.0; }

Json probability_json(const sampler::TokenLogprob& entry, const text::Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.bytes(entry.token, {});
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"id", entry.token}, {"token", bytes}, {"bytes", std::move(list)}, {"logprob", entry.logprob}};
}

}  // namespace

Json timings_json(const Timings& t) {
  const auto made = static_cast<double>(t.predicted_n);
  // The time begins with the first token, so that there is one interval less than tokens.
  const double intervals = std::max(made - 1, 0.0);
  return {{"cache_n", t.cache_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", ratio(t.prompt_ms, t.prompt_n)},
          {"prompt_per_second", ratio(1e3 * t.prompt_n, t.prompt_ms)},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_token_ms", ratio(t.predicted_ms, intervals)},
          {"predicted_per_second", ratio(1e3 * intervals, t.predicted_ms)}};
}

Json usage_json(const Usage& usage) {
  Json told{{"completion_tokens", usage.completion},
            {"prompt_tokens", usage.prompt},
            {"total_tokens", usage.prompt + usage.completion},
            {"prompt_tokens_details", Json{{"cached_tokens", usage.cached}}}};
  if (usage.reasoning > 0) told["completion_tokens_details"] = Json{{"reasoning_tokens", usage.reasoning}};
  return told;
}

Json probabilities_json(const std::vector<sampler::Logprobs>& tokens, std::uint32_t n_top,
                        const text::Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const sampler::Logprobs& token : tokens) {
    Json entry = probability_json(token.chosen, tokenizer);
    Json top = Json::array();
    for (std::size_t i = 0; i < std::min<std::size_t>(n_top, token.top.size()); ++i)
      top.push_back(probability_json(token.top[i], tokenizer));
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

Json generation_settings(const Ask& ask, std::uint64_t seed, bool of_server) {
  const sampler::SamplingOptions& s = ask.sampling;
  const std::int64_t n_predict =
      !ask.max_tokens || *ask.max_tokens == kUnlimited ? -1 : static_cast<std::int64_t>(*ask.max_tokens);
  Json settings{{"seed", seed},
                {"temperature", s.temperature},
                {"dynatemp_range", 0.0},
                {"dynatemp_exponent", 1.0},
                {"top_k", s.top_k},
                {"top_p", s.top_p},
                {"min_p", s.min_p},
                {"top_n_sigma", -1.0},
                {"xtc_probability", 0.0},
                {"xtc_threshold", 0.1f},
                {"typical_p", 1.0},
                {"repeat_last_n", s.repeat_last_n},
                {"repeat_penalty", s.repeat_penalty},
                {"presence_penalty", s.presence_penalty},
                {"frequency_penalty", s.frequency_penalty},
                {"dry_multiplier", 0.0},
                {"dry_base", 1.75},
                {"dry_allowed_length", 2},
                {"dry_penalty_last_n", 64}};
  if (!of_server) settings["dry_sequence_breakers"] = Json::array({"\n", ":", "\"", "*"});
  settings.update({{"mirostat", 0},
                   {"mirostat_tau", 5.0},
                   {"mirostat_eta", 0.1f},
                   {"adaptive_target", -1.0},
                   {"adaptive_decay", 0.9f}});
  if (!of_server) settings["stop"] = ask.stops;
  settings.update({{"max_tokens", n_predict},
                   {"n_predict", n_predict},
                   {"n_keep", 0},
                   {"n_discard", 0},
                   {"ignore_eos", ask.ignore_eos},
                   {"stream", ask.stream}});
  if (!of_server) {
    Json biases = Json::array();
    for (const sampler::LogitBias& bias : ask.logit_bias)
      biases.push_back({{"bias", bias.bias}, {"token", bias.token}});
    settings["logit_bias"] = std::move(biases);
  }
  settings.update({{"n_probs", ask.n_probs}, {"min_keep", 0}});
  if (!of_server)
    settings.update({{"grammar", ask.grammar == nullptr ? Json("") : *ask.grammar},
                     {"grammar_lazy", false},
                     {"grammar_triggers", Json::array()},
                     {"preserved_tokens", Json::array()}});
  settings.update({{"chat_format", "Content-only"},
                   {"reasoning_format", ask.split_reasoning ? "deepseek" : "none"},
                   {"reasoning_in_content", false},
                   {"generation_prompt", ""},
                   {"samplers", {"penalties", "top_k", "top_p", "min_p", "temperature"}},
                   {"speculative.types", "none"},
                   {"timings_per_token", ask.timings_per_token},
                   {"post_sampling_probs", false},
                   {"backend_sampling", false},
                   {"lora", Json::array()}});
  return settings;
}

std::string event(const Json& data) { return fmt::format("data: {}\n\n", dump(data)); }

std::string event(std::string_view name, const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, dump(data));
}

std::string random_id(std::string_view prefix, std::size_t n, const Context& context) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id(prefix);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 8 == 0) bits = context.random();
    id += kLetters[(bits & 0xFF) % kLetters.size()];
    bits >>= 8;
  }
  return id;
}

}  // namespace terrace::serve::api
