#include "coordinator/sampler/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/finite.h"

namespace terrace::sampler {
namespace {

// ln of the softmax's denominator. The largest logit's term is 1, so the sum is at least 1.
double log_denominator(std::span<const float> logits, float best, const kernels::Ops& ops) {
  constexpr std::size_t kBlock = 512;
  std::array<float, kBlock> block;
  double total = 0.0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto part = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    std::ranges::transform(part, block.begin(), [best](float logit) { return logit - best; });
    ops.exp(block.data(), part.size(), block.data());
    for (std::size_t i = 0; i < part.size(); ++i) total += static_cast<double>(block[i]);
  }
  return static_cast<double>(best) + std::log(total);
}

// The n largest logits as (logit falling, id rising) into `top`, which holds logits until the caller turns them.
void find_largest(std::span<const float> logits, std::size_t n, std::vector<TokenLogprob>& top) {
  top.clear();
  top.reserve(n);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const auto logit = static_cast<double>(logits[id]);
    if (top.size() == n && (n == 0 || logit <= top.back().logprob)) continue;
    if (top.size() == n) top.pop_back();
    const auto place = std::ranges::upper_bound(top, logit, std::ranges::greater{}, &TokenLogprob::logprob);
    top.insert(place, {static_cast<std::int32_t>(id), logit});
  }
}

}  // namespace

Status find_logprobs(std::span<const float> logits, std::int32_t chosen, std::size_t n_top, const kernels::Ops& ops,
                     Logprobs& out) {
  if (chosen < 0 || static_cast<std::size_t>(chosen) >= logits.size())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("log-probability of token {}; the vocabulary has {} tokens", chosen, logits.size()));
  if (!ops.all_finite(logits.data(), logits.size())) {
    const auto bad = std::ranges::find_if_not(logits, is_finite);
    return Error(ErrorCode::kNotFinite, fmt::format("the logit of token {} is {}", bad - logits.begin(), *bad));
  }
  const float best = logits[ops.largest(logits.data(), logits.size())];
  const double denominator = log_denominator(logits, best, ops);
  const auto logprob = [denominator](double logit) { return std::min(logit - denominator, 0.0); };
  out.chosen = {chosen, logprob(static_cast<double>(logits[static_cast<std::size_t>(chosen)]))};
  find_largest(logits, std::min(n_top, logits.size()), out.top);
  for (TokenLogprob& token : out.top) token.logprob = logprob(token.logprob);
  return {};
}

}  // namespace terrace::sampler
