// Log-probabilities of tokens, for reports to a client: no token depends on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::sampler {

struct TokenLogprob {
  std::int32_t token = 0;
  double logprob = 0.0;  // natural logarithm, <= 0
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the most probable first, of equal ones the lowest id
};

// log softmax(logits) of `chosen` and of the `n_top` most probable tokens (fewer if the vocabulary is smaller), as the
// model gave the logits: before bias, grammar, penalties and temperature.
//   logits  [vocab_size] finite; borrowed for the call        chosen  an id below vocab_size
//   out     overwritten; its memory is used again, so a second call with no larger n_top allocates nothing
// log Z = l_0 + ln(sum of EXP(l_i - l_0)), EXP in f32 (docs/numerics.md 4), the sum in f64 by rising id, ln as the C
// library has it: the last bits of a report may differ between machines.
// kInvalidArgument: `chosen` is out of range. kNotFinite: a logit is not finite.
Status find_logprobs(std::span<const float> logits, std::int32_t chosen, std::size_t n_top, const kernels::Ops& ops,
                     Logprobs& out);

}  // namespace terrace::sampler
