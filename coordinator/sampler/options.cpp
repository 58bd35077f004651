#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <unordered_set>

#include "coordinator/sampler/sampler.h"

namespace terrace::sampler {
namespace {

struct Range {
  float low;
  bool low_allowed;
  float high;
  const char* allowed;
};

constexpr float kLargest = std::numeric_limits<float>::max();

Status check(const char* flag, float found, const Range& range) {
  const bool above_low = range.low_allowed ? found >= range.low : found > range.low;
  if (above_low && found <= range.high) return {};  // false for NaN
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; allowed is {}", flag, found, range.allowed));
}

Status check(const char* flag, std::int32_t found, std::int32_t least, const char* special) {
  if (found >= least) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} is {}; allowed is {} or more ({})", flag, found, least, special));
}

}  // namespace

Status validate(const SamplingOptions& options) {
  const Range zero_to_one{0.0f, true, 1.0f, "0 to 1"};
  const Range any{-kLargest, true, kLargest, "any finite number"};
  TERRACE_RETURN_IF_ERROR(
      check("--temperature", options.temperature, Range{0.0f, true, kLargest, "0 (greedy) or a larger finite number"}));
  TERRACE_RETURN_IF_ERROR(check("--top-k", options.top_k, 0, "0 keeps all tokens"));
  TERRACE_RETURN_IF_ERROR(check("--top-p", options.top_p, zero_to_one));
  TERRACE_RETURN_IF_ERROR(check("--min-p", options.min_p, zero_to_one));
  TERRACE_RETURN_IF_ERROR(check("--repeat-penalty", options.repeat_penalty,
                                Range{0.0f, false, kLargest, "a finite number above 0 (1 is no penalty)"}));
  TERRACE_RETURN_IF_ERROR(check("--presence-penalty", options.presence_penalty, any));
  TERRACE_RETURN_IF_ERROR(check("--frequency-penalty", options.frequency_penalty, any));
  return check("--repeat-last-n", options.repeat_last_n, -1, "-1 looks at the whole history");
}

Status validate(std::span<const LogitBias> biases, std::size_t vocab_size) {
  std::unordered_set<std::int32_t> seen;
  for (const LogitBias& bias : biases) {
    if (bias.token < 0 || static_cast<std::size_t>(bias.token) >= vocab_size)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("logit_bias names token {}; the vocabulary has 0 to {}", bias.token, vocab_size - 1));
    if (!(bias.bias >= LogitBias::kBan && bias.bias <= -LogitBias::kBan))
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("logit_bias of token {} is {}; allowed is -100 to 100", bias.token, bias.bias));
    if (!seen.insert(bias.token).second)
      return Error(ErrorCode::kInvalidArgument, fmt::format("logit_bias names token {} twice", bias.token));
  }
  return {};
}

}  // namespace terrace::sampler
