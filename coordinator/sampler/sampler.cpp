#include "coordinator/sampler/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/base/finite.h"
#include "coordinator/sampler/philox.h"

namespace terrace::sampler {
namespace {

// A candidate is one integer, so that sorting keys upwards sorts (logit falling, id rising): the id below, and above it
// the logit's bits, mapped so that their order as integers is the order of the floats, and inverted.
constexpr std::uint32_t kSign = 0x80000000u;
// The key of a token that is no candidate: that of no finite logit.
constexpr std::uint64_t kBanned = ~std::uint64_t{0};

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

bool is_candidate(std::span<const std::uint64_t> mask, std::size_t id) {
  return mask.empty() || (mask[id / 64] >> id % 64 & 1) != 0;
}

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

SamplerMemory::SamplerMemory(std::size_t vocab_size)
    : keys_(vocab_size), scaled_(vocab_size), weights_(vocab_size), counts_(vocab_size) {}

Sampler::Sampler(const SamplingOptions& options, std::size_t vocab_size, const kernels::Ops& ops,
                 std::vector<LogitBias> biases)
    : Sampler(options, vocab_size, ops, std::move(biases), NoMemory()) {
  own_ = std::make_unique<SamplerMemory>(vocab_size);
}

Sampler::Sampler(const SamplingOptions& options, std::size_t vocab_size, const kernels::Ops& ops,
                 std::vector<LogitBias> biases, NoMemory)
    : options_(options), ops_(ops), biases_(std::move(biases)), vocab_size_(vocab_size) {
  TERRACE_CHECK(validate(options).ok(), "sampling options that were not validated");
  TERRACE_CHECK(vocab_size >= 1 && vocab_size < kSign, "a vocabulary size out of range");
  TERRACE_CHECK(validate(biases_, vocab_size).ok(), "biases that were not validated");
}

bool Sampler::has_penalties() const {
  return options_.repeat_last_n != 0 &&
         (options_.repeat_penalty != 1.0f || options_.presence_penalty != 0.0f || options_.frequency_penalty != 0.0f);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, std::uint64_t token_index,
                                     std::span<const std::int32_t> history, Mask mask) {
  TERRACE_CHECK(own_ != nullptr, "a sampler without memory of its own");
  return sample(logits, token_index, history, mask, *own_);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, std::uint64_t token_index,
                                     std::span<const std::int32_t> history, Mask mask, SamplerMemory& memory) {
  const std::size_t vocab_size = vocab_size_;
  memory_ = &memory;
  TERRACE_CHECK(memory.keys_.size() == vocab_size, "memory for another vocabulary");
  TERRACE_CHECK(logits.size() == vocab_size, "logits of another vocabulary");
  TERRACE_CHECK(mask.empty() || mask.size() == (vocab_size + 63) / 64, "a mask of another vocabulary");
  TERRACE_RETURN_IF_ERROR(check_finite(logits));
  if (takes_largest(mask))
    return static_cast<std::int32_t>(ops_.largest(logits.data(), vocab_size));  // the first of equal ones

  for (std::size_t id = 0; id < vocab_size; ++id) memory_->keys_[id] = key_of(logits[id], id);
  TERRACE_RETURN_IF_ERROR(add_biases(logits, mask));
  if (has_penalties()) TERRACE_RETURN_IF_ERROR(penalise(vocab_size, history, mask));
  TERRACE_ASSIGN_OR_RETURN(std::size_t n, gather_candidates(mask));
  if (options_.temperature == 0.0f)
    return id_of(*std::min_element(memory_->keys_.begin(), memory_->keys_.begin() + static_cast<std::ptrdiff_t>(n)));

  n = sort_candidates(n);
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

// Rewrites the keys of the tokens that have a bias.
Status Sampler::add_biases(std::span<const float> logits, Mask mask) {
  for (const LogitBias& bias : biases_) {
    const auto id = static_cast<std::size_t>(bias.token);
    if (!is_candidate(mask, id)) continue;
    if (bias.bias <= LogitBias::kBan) {
      memory_->keys_[id] = kBanned;
      continue;
    }
    const float logit = logits[id] + bias.bias;
    if (!is_finite(logit)) return not_finite(id, logit, " after its bias");
    memory_->keys_[id] = key_of(logit, id);
  }
  return {};
}

// Rewrites the keys of the tokens in the history's last places.
Status Sampler::penalise(std::size_t vocab_size, std::span<const std::int32_t> history, Mask mask) {
  if (options_.repeat_last_n > 0)
    history = history.last(std::min(history.size(), static_cast<std::size_t>(options_.repeat_last_n)));
  for (const std::int32_t id : history) {
    if (id < 0 || static_cast<std::size_t>(id) >= vocab_size)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the history holds token {}; the vocabulary has 0 to {}", id, vocab_size - 1));
  }
  for (const std::int32_t id : history) ++memory_->counts_[static_cast<std::size_t>(id)];

  Status status;
  for (const std::int32_t token : history) {
    const auto id = static_cast<std::size_t>(token);
    const std::uint32_t count = std::exchange(memory_->counts_[id], 0);
    if (count == 0) continue;  // done at its first place
    if (memory_->keys_[id] == kBanned || !is_candidate(mask, id)) continue;
    float logit = logit_of(memory_->keys_[id]);
    logit = logit > 0.0f ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    logit -= static_cast<float>(count) * options_.frequency_penalty + options_.presence_penalty;
    if (status.ok() && !is_finite(logit)) status = not_finite(id, logit, " after its penalties");
    memory_->keys_[id] = key_of(logit, id);
  }
  return status;
}

// Moves the keys of the candidates to the beginning of memory_->keys_, ids rising, and returns how many there are.
Result<std::size_t> Sampler::gather_candidates(Mask mask) {
  std::size_t n = memory_->keys_.size();
  if (!mask.empty()) {
    n = 0;
    for (std::size_t word = 0; word < mask.size(); ++word)
      for (std::uint64_t bits = mask[word]; bits != 0; bits &= bits - 1)
        memory_->keys_[n++] = memory_->keys_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
  }
  if (!biases_.empty()) {
    const auto end = memory_->keys_.begin() + static_cast<std::ptrdiff_t>(n);
    n = static_cast<std::size_t>(std::remove(memory_->keys_.begin(), end, kBanned) - memory_->keys_.begin());
  }
  if (n == 0)
    return Error(ErrorCode::kRefused, mask.empty()
                                          ? "logit_bias bans every token of the vocabulary"
                                          : "the grammar and logit_bias allow no token of the vocabulary here");
  return n;
}

// Sorts as many of the first n candidates as can matter to the beginning of memory_->keys_, and returns how many those
// are.
std::size_t Sampler::sort_candidates(std::size_t n) {
  n = drop_hopeless(n);
  const std::size_t n_kept = options_.top_k == 0 ? n : std::min(n, static_cast<std::size_t>(options_.top_k));
  const auto at = [this](std::size_t i) { return memory_->keys_.begin() + static_cast<std::ptrdiff_t>(i); };
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
std::size_t Sampler::drop_hopeless(std::size_t n) {
  constexpr float kLeastMinP = 1e-30f;
  constexpr double kMargin = 0.01;
  if (options_.top_p < 1.0f || options_.min_p < kLeastMinP) return n;
  const auto keys = std::span(memory_->keys_).first(n);
  const double best = logit_of(*std::ranges::min_element(keys));
  const double bound = best + std::log(static_cast<double>(options_.min_p)) - kMargin;
  const auto kept =
      std::partition(keys.begin(), keys.end(), [bound](std::uint64_t key) { return logit_of(key) >= bound; });
  return static_cast<std::size_t>(kept - keys.begin());
}

// memory_->weights_[i] = EXP((l_i - l_0) / temperature) for the first n candidates.
void Sampler::weigh(std::size_t n, float temperature) {
  const float best = logit_of(memory_->keys_[0]);
  for (std::size_t i = 0; i < n; ++i) memory_->scaled_[i] = (logit_of(memory_->keys_[i]) - best) / temperature;
  ops_.exp(memory_->scaled_.data(), n, memory_->weights_.data());
}

std::size_t Sampler::apply_top_p(std::size_t n) const {
  if (options_.top_p >= 1.0f) return n;
  const double target = static_cast<double>(options_.top_p) * sum(std::span(memory_->weights_).first(n));
  double reached = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    reached += static_cast<double>(memory_->weights_[i]);
    if (reached >= target) return i + 1;
  }
  return n;
}

std::size_t Sampler::apply_min_p(std::size_t n) const {
  const auto weights = std::span(memory_->weights_).first(n);
  const auto below = [this](float weight) { return weight < options_.min_p; };
  return static_cast<std::size_t>(std::ranges::find_if(weights, below) - weights.begin());
}

std::int32_t Sampler::draw(std::size_t n, std::uint64_t token_index) const {
  const double target = uniform(options_.seed, token_index) * sum(std::span(memory_->weights_).first(n));
  double reached = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    reached += static_cast<double>(memory_->weights_[i]);
    if (reached > target) return id_of(memory_->keys_[i]);
  }
  return id_of(memory_->keys_[n - 1]);  // u * V may round up to V
}

}  // namespace terrace::sampler
