#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/field_row.h"

namespace terrace::serve::api {
namespace {

using sampler::SamplingOptions;

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 4096;

template <float SamplingOptions::*Member, NumberRange range>
Status option(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(ask.sampling.*Member, read_number(value, range));
  return {};
}

template <std::int32_t SamplingOptions::*Member, std::int64_t low>
Status count(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, low, kMaxInt));
  ask.sampling.*Member = static_cast<std::int32_t>(found);
  return {};
}

// As clients of llama-server write it: what is not above 0 keeps all tokens.
Status top_k(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, -1, kMaxInt));
  ask.sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(found, 0));
  return {};
}

// -1, and what llama-server shows for it, is a random seed.
Status seed(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, -1, static_cast<std::int64_t>(kMaxWhole)));
  ask.random_seed = found == -1 || found == std::numeric_limits<std::uint32_t>::max();
  if (!ask.random_seed) ask.sampling.seed = static_cast<std::uint64_t>(found);
  return {};
}

Status stop(const Json& value, Ask& ask, const Context&) {
  const Json list = value.is_string() ? Json::array({value}) : value;
  if (!list.is_array()) return must_be("a string or an array of strings", value);
  if (list.size() > kMaxStops) return must_be(fmt::format("at most {} strings", kMaxStops), value);
  for (const Json& item : list) {
    TERRACE_ASSIGN_OR_RETURN(std::string text, read_string(item));
    if (text.empty() || text.size() > kMaxStopBytes)
      return must_be(fmt::format("strings of 1 to {} bytes", kMaxStopBytes), item);
    ask.stops.push_back(std::move(text));
  }
  return {};
}

// As OpenAI has it; -100 bans a token.
constexpr NumberRange kBias{-100, 100};

// The tokens that one key of logit_bias stands for: an id, or a text and all its tokens.
Result<std::vector<std::int32_t>> biased_tokens(const Json& key, const Context& context) {
  if (key.is_string()) return context.tokenizer->encode(key.get_ref<const std::string&>(), {.parse_special = true});
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t id,
                           read_whole(key, 0, static_cast<std::int64_t>(context.tokenizer->size()) - 1));
  return std::vector{static_cast<std::int32_t>(id)};
}

Status add_bias(const Json& key, const Json& value, Ask& ask, const Context& context) {
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, biased_tokens(key, context));
  float bias = sampler::LogitBias::kBan;
  if (value != Json(false)) {
    TERRACE_ASSIGN_OR_RETURN(bias, read_number(value, kBias));
  }
  for (const std::int32_t id : ids) ask.logit_bias.push_back({id, bias});
  return {};
}

// {"ID": BIAS}, [[ID or TEXT, BIAS]] and [{"token": ID, "bias": BIAS}], which is how generation_settings tells it;
// BIAS false: never.
Status logit_bias(const Json& value, Ask& ask, const Context& context) {
  if (value.is_object()) {
    for (const auto& [key, bias] : value.items()) {
      const bool is_id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      TERRACE_RETURN_IF_ERROR(add_bias(is_id ? Json(std::stoll(key)) : Json(key), bias, ask, context));
    }
    return {};
  }
  constexpr std::string_view kForm = "an object {\"ID\": BIAS} or an array of pairs [ID, BIAS]";
  if (!value.is_array()) return must_be(kForm, value);
  for (const Json& pair : value) {
    if (pair.is_array() && pair.size() == 2) {
      TERRACE_RETURN_IF_ERROR(add_bias(pair[0], pair[1], ask, context));
    } else if (pair.is_object() && pair.size() == 2 && pair.contains("token") && pair.contains("bias")) {
      TERRACE_RETURN_IF_ERROR(add_bias(pair["token"], pair["bias"], ask, context));
    } else {
      return must_be(kForm, pair);
    }
  }
  return {};
}

Status max_tokens(const Json& value, Ask& ask, std::int64_t low) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, low, static_cast<std::int64_t>(kMaxWhole)));
  const std::uint64_t tokens = found < 0 ? kUnlimited : static_cast<std::uint64_t>(found);
  if (ask.max_tokens && *ask.max_tokens != tokens)
    return Error(ErrorCode::kInvalidArgument, "contradicts another of max_tokens, max_completion_tokens and n_predict");
  ask.max_tokens = tokens;
  return {};
}
Status max_tokens_or_all(const Json& value, Ask& ask, const Context&) { return max_tokens(value, ask, -1); }
Status max_tokens_at_least_one(const Json& value, Ask& ask, const Context&) { return max_tokens(value, ask, 1); }

Status max_predict_ms(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::int64_t found, read_whole(value, -1, kMaxInt));
  if (found > 0) ask.max_predict_ms = static_cast<std::uint32_t>(found);
  return {};
}

Status ignore_eos(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(ask.ignore_eos, read_bool(value));
  return {};
}

Status grammar(const Json& value, Ask& ask, const Context&) {
  TERRACE_ASSIGN_OR_RETURN(const std::string text, read_string(value));
  if (!text.empty()) ask.grammar = &value;
  return {};
}

Status json_schema(const Json& value, Ask& ask, const Context&) {
  if (!value.is_object() && !value.is_boolean()) return must_be("a JSON schema: an object, true or false", value);
  ask.json_schema = &value;
  return {};
}

constexpr NumberRange kZeroUp{0, kFiniteFloat.high};
constexpr NumberRange kZeroToOne{0, 1};
constexpr NumberRange kAboveZero{0, kFiniteFloat.high, false};
constexpr std::string_view kBreakers = R"([[], ["\n", ":", "\"", "*"]])";
constexpr std::string_view kSamplers =
    R"([["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
        ["penalties", "top_k", "top_p", "min_p", "temperature"]])";

const ReadableRow kRows[] = {
    honoured("temperature", kGenerating, option<&SamplingOptions::temperature, kZeroUp>, "0 or more; 0.8"),
    honoured("top_k", kGenerating, top_k, "-1 or more; 0 and -1: all tokens; 40"),
    honoured("top_p", kGenerating, option<&SamplingOptions::top_p, kZeroToOne>, "0 to 1; 0.95"),
    honoured("min_p", kGenerating, option<&SamplingOptions::min_p, kZeroToOne>, "0 to 1; 0.05"),
    honoured("repeat_penalty", kGenerating, option<&SamplingOptions::repeat_penalty, kAboveZero>, "above 0; 1: none"),
    honoured("presence_penalty", kGenerating, option<&SamplingOptions::presence_penalty, kFiniteFloat>,
             "any number; 0"),
    honoured("frequency_penalty", kGenerating, option<&SamplingOptions::frequency_penalty, kFiniteFloat>,
             "any number; 0"),
    honoured("repeat_last_n", kGenerating, count<&SamplingOptions::repeat_last_n, -1>,
             "tokens that penalties look at; -1: all, 0: none; 64"),
    honoured("seed", kGenerating, seed, "0 or more; -1: a random one, which the answer tells"),
    honoured("logit_bias", kLlamaFields | kOnResponses, logit_bias,
             "{\"ID\": BIAS}, or pairs [ID or TEXT, BIAS]; -100 to 100; -100 and false: never"),
    honoured("stop", kLlamaFields | kOnResponses, stop, "a string, or an array of at most 64"),
    honoured("stop_sequences", kOnMessages, stop, "an array of at most 64 strings"),
    honoured("max_tokens", kLlamaFields, max_tokens_or_all, "-1: until the context is full, the default"),
    honoured("max_completion_tokens", kOnChat, max_tokens_or_all, "the same"),
    honoured("n_predict", kLlamaFields, max_tokens_or_all, "the same"),
    honoured("max_tokens", kOnMessages, max_tokens_at_least_one, "1 or more; without it, until the context is full"),
    honoured("max_output_tokens", kOnResponses, max_tokens_at_least_one, "1 or more"),
    honoured("t_max_predict_ms", kLlamaFields, max_predict_ms,
             "ends the text at the first line break after so many milliseconds; 0 and -1: never"),
    honoured("ignore_eos", kLlamaFields, ignore_eos, "the model's end tokens are never chosen; false"),
    honoured("grammar", kLlamaFields, grammar, "GBNF; excludes json_schema and response_format"),
    honoured("json_schema", kLlamaFields, json_schema, "a JSON schema; excludes grammar and response_format"),
    neutral("typical_p", kLlamaFields, "[1]"),
    neutral("mirostat", kLlamaFields, "[0]"),
    neutral("mirostat_tau", kLlamaFields, "[5]"),
    neutral("mirostat_eta", kLlamaFields, "[0.1]"),
    neutral("dry_multiplier", kLlamaFields, "[0]"),
    neutral("dry_base", kLlamaFields, "[1.75]"),
    neutral("dry_allowed_length", kLlamaFields, "[2]"),
    neutral("dry_penalty_last_n", kLlamaFields, "[-1, 0, 64]"),
    neutral("dry_sequence_breakers", kLlamaFields, kBreakers),
    neutral("xtc_probability", kLlamaFields, "[0]"),
    neutral("xtc_threshold", kLlamaFields, "[0.1]"),
    neutral("top_n_sigma", kLlamaFields, "[-1, 0]"),
    neutral("dynatemp_range", kLlamaFields, "[0]"),
    neutral("dynatemp_exponent", kLlamaFields, "[1]"),
    neutral("adaptive_target", kLlamaFields, "[-1]"),
    neutral("adaptive_decay", kLlamaFields, "[0.9]"),
    neutral("min_keep", kLlamaFields, "[0]"),
    neutral("samplers", kLlamaFields, kSamplers),
    neutral("n_keep", kLlamaFields, "[0]"),
    neutral("n_discard", kLlamaFields, "[0]"),
    neutral("n_indent", kLlamaFields, "[0]"),
    neutral("post_sampling_probs", kLlamaFields, "[false]"),
    neutral("backend_sampling", kLlamaFields, "[false]"),
    neutral("grammar_lazy", kLlamaFields, "[false]"),
    neutral("grammar_triggers", kLlamaFields, "[[]]"),
    neutral("preserved_tokens", kLlamaFields, "[[]]"),
};

}  // namespace

std::span<const ReadableRow> sampling_rows() { return kRows; }

}  // namespace terrace::serve::api
