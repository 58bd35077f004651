#include "coordinator/sampler/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/finite.h"
#include "coordinator/sampler/philox.h"

namespace terrace::sampler {
namespace {

// A candidate is one integer, so that sorting keys upwards sorts (logit falling, id rising): the id below, and above it
// the logit's bits, mapped so that their order as integers is the order of the floats, and inverted.
constexpr std::uint32_t kSign = 0x80000000u;

std::uint64_t key_of(float logit, std::size_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 + 0 = +0: equal, so the id decides
  const std::uint32_t rising = bits & kSign ? ~bits : bits | kSign;
  return static_cast<std::uint64_t>(~rising) << 32 | static_cast<std::uint32_t>(id);
}

float logit_of(std::uint64_t key) {
  const std::uint32_t rising = ~static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>(rising & kSign ? rising & ~kSign : ~rising);
}

std::int32_t id_of(std::uint64_t key) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(key)); }

Error not_finite(std::size_t id, float value, const char* when) {
  return Error(ErrorCode::kNotFinite, fmt::format("the logit of token {} is {} (bits 0x{:08x}){}", id, value,
                                                  std::bit_cast<std::uint32_t>(value), when));
}

// In order from +0: the order is part of the definition.
double sum(std::span<const float> values) {
  double total = 0.0;
  for (const float value : values) total += static_cast<double>(value);
  return total;
}

// In [0, 1), a function of its arguments.
double uniform(std::uint64_t seed, std::uint64_t token_index) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); };
  const PhiloxCounter words = philox4x32_10({low(token_index), high(token_index), 0, 0}, {low(seed), high(seed)});
  const std::uint64_t bits = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, std::size_t vocab_size, const kernels::Ops& ops)
    : options_(options), ops_(ops) {
  TERRACE_CHECK(validate(options).ok(), "sampling options that were not validated");
  TERRACE_CHECK(vocab_size >= 1 && vocab_size < kSign, "a vocabulary size out of range");
  keys_.resize(vocab_size);
  scaled_.resize(vocab_size);
  weights_.resize(vocab_size);
  if (has_penalties()) counts_.resize(vocab_size, 0);
}

bool Sampler::has_penalties() const {
  return options_.repeat_last_n != 0 &&
         (options_.repeat_penalty != 1.0f || options_.presence_penalty != 0.0f || options_.frequency_penalty != 0.0f);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, std::uint64_t token_index,
                                     std::span<const std::int32_t> history) {
  TERRACE_CHECK(logits.size() == keys_.size(), "logits of another vocabulary");
  TERRACE_RETURN_IF_ERROR(check_finite(logits));
  const bool is_greedy = options_.temperature == 0.0f;
  if (is_greedy && !has_penalties())
    return static_cast<std::int32_t>(ops_.largest(logits.data(), logits.size()));  // the first of equal ones

  for (std::size_t id = 0; id < logits.size(); ++id) keys_[id] = key_of(logits[id], id);
  if (has_penalties()) TERRACE_RETURN_IF_ERROR(penalise(logits, history));
  if (is_greedy) return id_of(*std::ranges::min_element(keys_));

  std::size_t n = sort_candidates();
  weigh(n, 1.0f);  // the two filters look at the distribution before the temperature
  n = apply_min_p(apply_top_p(n));
  weigh(n, options_.temperature);
  return draw(n, token_index);
}

Status Sampler::check_finite(std::span<const float> logits) const {
  if (ops_.all_finite(logits.data(), logits.size())) return {};
  const auto bad = std::ranges::find_if_not(logits, is_finite);
  return not_finite(static_cast<std::size_t>(bad - logits.begin()), *bad, "");
}

// Rewrites the keys of the tokens in the history's last places.
Status Sampler::penalise(std::span<const float> logits, std::span<const std::int32_t> history) {
  if (options_.repeat_last_n > 0)
    history = history.last(std::min(history.size(), static_cast<std::size_t>(options_.repeat_last_n)));
  for (const std::int32_t id : history) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the history holds token {}; the vocabulary has 0 to {}", id, logits.size() - 1));
  }
  for (const std::int32_t id : history) ++counts_[static_cast<std::size_t>(id)];

  Status status;
  for (const std::int32_t token : history) {
    const auto id = static_cast<std::size_t>(token);
    if (counts_[id] == 0) continue;  // done at its first place
    float logit = logits[id];
    logit = logit > 0.0f ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    logit -= static_cast<float>(counts_[id]) * options_.frequency_penalty + options_.presence_penalty;
    counts_[id] = 0;
    if (status.ok() && !is_finite(logit)) status = not_finite(id, logit, " after its penalties");
    keys_[id] = key_of(logit, id);
  }
  return status;
}

// Sorts as many candidates as can matter to the beginning of keys_, and returns how many those are.
std::size_t Sampler::sort_candidates() {
  const std::size_t n = drop_hopeless();
  const std::size_t n_kept = options_.top_k == 0 ? n : std::min(n, static_cast<std::size_t>(options_.top_k));
  const auto at = [this](std::size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (n_kept == n)
    std::sort(at(0), at(n));
  else
    std::partial_sort(at(0), at(n_kept), at(n));
  return n_kept;
}

// Moves candidates that min-p is sure to cut behind the others, so that they need no sorting; returns how many are
// left. Top-p's sum needs every candidate, so it must be off. A dropped logit is below l_0 + ln(min_p) by a margin that
// is far above the errors of EXP (7.6e-8, relative) and of the f32 difference (below 1e-5 where EXP does not clamp).
// EXP never goes below 1.6e-38: a min_p near that cuts nothing.
std::size_t Sampler::drop_hopeless() {
  constexpr float kLeastMinP = 1e-30f;
  constexpr double kMargin = 0.01;
  if (options_.top_p < 1.0f || options_.min_p < kLeastMinP) return keys_.size();
  const double best = logit_of(*std::ranges::min_element(keys_));
  const double bound = best + std::log(static_cast<double>(options_.min_p)) - kMargin;
  const auto dropped = std::ranges::partition(keys_, [bound](std::uint64_t key) { return logit_of(key) >= bound; });
  return keys_.size() - dropped.size();
}

// weights_[i] = EXP((l_i - l_0) / temperature) for the first n candidates.
void Sampler::weigh(std::size_t n, float temperature) {
  const float best = logit_of(keys_[0]);
  for (std::size_t i = 0; i < n; ++i) scaled_[i] = (logit_of(keys_[i]) - best) / temperature;
  ops_.exp(scaled_.data(), n, weights_.data());
}

std::size_t Sampler::apply_top_p(std::size_t n) const {
  if (options_.top_p >= 1.0f) return n;
  const double target = static_cast<double>(options_.top_p) * sum(std::span(weights_).first(n));
  double reached = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    reached += static_cast<double>(weights_[i]);
    if (reached >= target) return i + 1;
  }
  return n;
}

std::size_t Sampler::apply_min_p(std::size_t n) const {
  const auto weights = std::span(weights_).first(n);
  const auto below = [this](float weight) { return weight < options_.min_p; };
  return static_cast<std::size_t>(std::ranges::find_if(weights, below) - weights.begin());
}

std::int32_t Sampler::draw(std::size_t n, std::uint64_t token_index) const {
  const double target = uniform(options_.seed, token_index) * sum(std::span(weights_).first(n));
  double reached = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    reached += static_cast<double>(weights_[i]);
    if (reached > target) return id_of(keys_[i]);
  }
  return id_of(keys_[n - 1]);  // u * V may round up to V
}

}  // namespace terrace::sampler
