// Chooses the next token from logits. Same logits, options, token index and history: same token, on every ISA.
//
// Stages, in this order:
//   0 candidates  all tokens, or those of a mask; bias b is added to a token's logit (f32), or takes the token out.
//                 What is no candidate is as if the vocabulary did not have it.
//   1 penalties   on the logits of tokens that stand in the last `repeat_last_n` of the history, c times each:
//                 l = l > 0 ? l / repeat_penalty : l * repeat_penalty, then
//                 l = l - (c * frequency_penalty + presence_penalty); every operation f32
//     temperature 0 ends here: the largest logit, of equal ones the lowest id
//   2 top-k       candidates in the order of (logit falling, id rising), -0 equal to +0; the first top_k stay
//   3 top-p       w_i = EXP(l_i - l_0), S = sum of w; the shortest beginning with sum >= top_p * S stays, but at
//                 least the first
//   4 min-p       the longest beginning with w_i >= min_p stays; the first always does, as w_0 = 1
//   5 temperature v_i = EXP((l_i - l_0) / temperature), V = sum of v; the first i with v_0 + ... + v_i > u * V
// EXP, - and / are f32 (docs/numerics.md 4); sums and products with them f64, summed in the candidates' order from +0.
// u is in [0, 1): the upper 53 bits of words 1 and 0 of Philox4x32-10 with key = seed and counter = (token index, 0),
// low words first. So a token depends on its place in the sequence and on nothing that was drawn before.
// Source: docs/numerics.md 8; names and defaults of the flags as users of llama.cpp know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::sampler {

// The defaults sample as llama.cpp does once a temperature is given; without one the choice is greedy, so that a plain
// `generate` gives the same text each time.
struct SamplingOptions {
  float temperature = 0.0f;         // >= 0; 0: greedy, and stages 2 to 5 are left out
  std::int32_t top_k = 40;          // >= 0; 0: all
  float top_p = 0.95f;              // 0 .. 1; 1: all
  float min_p = 0.05f;              // 0 .. 1; 0: all
  float repeat_penalty = 1.0f;      // > 0; 1: none
  float presence_penalty = 0.0f;    // any; 0: none
  float frequency_penalty = 0.0f;   // any; 0: none
  std::int32_t repeat_last_n = 64;  // >= -1; 0: no penalties, -1: the whole history
  std::uint64_t seed = 0;
};

// Added to one token's logit, as OpenAI's `logit_bias` and llama-server's.
struct LogitBias {
  static constexpr float kBan = -100.0f;
  std::int32_t token = 0;
  float bias = 0.0f;  // -100 .. 100; kBan: the token is never chosen
};

// kInvalidArgument: names the first flag that is out of range, found and allowed. NaN and infinities are refused.
Status validate(const SamplingOptions& options);
// kInvalidArgument: a token beyond the vocabulary or named twice, a bias out of range; names both.
Status validate(std::span<const LogitBias> biases, std::size_t vocab_size);

// What choosing one token needs of memory, some 16 bytes a token of the vocabulary: for samplers that take turns.
class SamplerMemory {
 public:
  explicit SamplerMemory(std::size_t vocab_size);

 private:
  friend class Sampler;
  std::vector<std::uint64_t> keys_;    // [vocab_size] candidates as sortable keys, see sampler.cpp
  std::vector<float> scaled_;          // [vocab_size] what EXP is taken of
  std::vector<float> weights_;         // [vocab_size]
  std::vector<std::uint32_t> counts_;  // [vocab_size] all 0 between calls
};

// One per request. After construction sample() allocates nothing.
// Threads: one call at a time.
class Sampler {
 public:
  // With memory of its own. `options` and `biases` must be valid; vocab_size >= 1, below 2^31; `ops` is any table, all
  // choose alike.
  Sampler(const SamplingOptions& options, std::size_t vocab_size, const kernels::Ops& ops,
          std::vector<LogitBias> biases = {});
  // Without: each call brings some. Costs nothing that grows with the vocabulary.
  struct NoMemory {};
  Sampler(const SamplingOptions& options, std::size_t vocab_size, const kernels::Ops& ops,
          std::vector<LogitBias> biases, NoMemory);

  // The token chosen for place `token_index` of the sequence.
  //   logits   [vocab_size] borrowed for the call
  //   history  the tokens before it, oldest first, prompt included
  //   mask     the candidates: bit id % 64 of word id / 64, as GrammarState::allowed_tokens() gives it; bits beyond the
  //            vocabulary 0. Empty: all tokens. A mask of all tokens chooses as no mask does.
  // Errors: kNotFinite, a logit is infinite or NaN, or a candidate's is after bias and penalty; names the token and the
  //         bits.
  //         kInvalidArgument, the history holds an id beyond the vocabulary.
  //         kRefused, no token is a candidate.
  Result<std::int32_t> sample(std::span<const float> logits, std::uint64_t token_index,
                              std::span<const std::int32_t> history, std::span<const std::uint64_t> mask = {});
  // The same in memory for this vocabulary, which nobody else uses meanwhile: what it held before does not matter.
  Result<std::int32_t> sample(std::span<const float> logits, std::uint64_t token_index,
                              std::span<const std::int32_t> history, std::span<const std::uint64_t> mask,
                              SamplerMemory& memory);
  // Whether sample() chooses the largest logit, of equal ones the lowest id, whatever the logits are: who knows that
  // one, and that all are finite, need not ask.
  bool takes_largest(std::span<const std::uint64_t> mask = {}) const {
    return options_.temperature == 0.0f && !has_penalties() && biases_.empty() && mask.empty();
  }

 private:
  using Mask = std::span<const std::uint64_t>;
  bool has_penalties() const;
  Status check_finite(std::span<const float> logits) const;
  Status add_biases(std::span<const float> logits, Mask mask);
  Status penalise(std::size_t vocab_size, std::span<const std::int32_t> history, Mask mask);
  Result<std::size_t> gather_candidates(Mask mask);
  std::size_t sort_candidates(std::size_t n);
  std::size_t drop_hopeless(std::size_t n);
  std::size_t apply_top_p(std::size_t n) const;
  std::size_t apply_min_p(std::size_t n) const;
  void weigh(std::size_t n, float temperature);
  std::int32_t draw(std::size_t n, std::uint64_t token_index) const;

  SamplingOptions options_;
  kernels::Ops ops_;
  std::vector<LogitBias> biases_;
  std::size_t vocab_size_;
  std::unique_ptr<SamplerMemory> own_;  // null: each call brings it
  SamplerMemory* memory_ = nullptr;     // of the call
};

}  // namespace terrace::sampler
