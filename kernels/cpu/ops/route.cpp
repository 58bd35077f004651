#include <algorithm>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/ops/scalar.h"

namespace terrace::kernels {
namespace {

void softmax(const float* logits, std::size_t n, ExpFn exp, float* p) {
  const float max = *std::max_element(logits, logits + n);
  for (std::size_t i = 0; i < n; ++i) p[i] = logits[i] - max;
  exp(p, n, p);
  scalar::Lanes lanes;
  for (std::size_t i = 0; i < n; ++i) lanes.of(i) += p[i];
  const float sum = lanes.total();
  for (std::size_t i = 0; i < n; ++i) p[i] = p[i] / sum;
}

// SIGMOID of docs/numerics.md 4.
void sigmoid(const float* logits, std::size_t n, ExpFn exp, float* p) {
  for (std::size_t i = 0; i < n; ++i) p[i] = -logits[i];
  exp(p, n, p);
  for (std::size_t i = 0; i < n; ++i) p[i] = 1.0f / (1.0f + p[i]);
}

// ids[0 .. top_k): the largest keys, larger first; an equal key stays behind those found before it, so lower ids lead.
void select_largest(const float* keys, std::size_t n, std::size_t top_k, std::uint16_t* ids) {
  std::size_t n_found = 0;
  for (std::size_t id = 0; id < n; ++id) {
    if (n_found == top_k && !(keys[id] > keys[ids[top_k - 1]])) continue;
    std::size_t place = n_found < top_k ? n_found++ : top_k - 1;
    for (; place > 0 && keys[id] > keys[ids[place - 1]]; --place) ids[place] = ids[place - 1];
    ids[place] = static_cast<std::uint16_t>(id);
  }
}

void weigh(const float* p, const RouterRule& rule, const std::uint16_t* ids, float* weights) {
  float sum = 0;
  for (std::size_t i = 0; i < rule.top_k; ++i) sum += p[ids[i]];
  if (rule.clamp_sum) sum = std::max(sum, 0x1p-14f);
  for (std::size_t i = 0; i < rule.top_k; ++i) {
    weights[i] = p[ids[i]] / sum;
    if (rule.scale) weights[i] *= *rule.scale;
  }
}

}  // namespace

void route(const float* logits, std::size_t n_experts, const RouterRule& rule, ExpFn exp, float* scratch,
           std::uint16_t* ids, float* weights) {
  TERRACE_CHECK(rule.top_k >= 1 && rule.top_k <= n_experts && n_experts <= 65536, "top_k of n_experts");
  float* p = scratch;
  float* biased = scratch + n_experts;
  if (rule.kind == RouterKind::kSoftmax) {
    softmax(logits, n_experts, exp, p);
  } else {
    sigmoid(logits, n_experts, exp, p);
  }
  const float* keys = rule.kind == RouterKind::kSoftmax ? logits : p;
  if (rule.selection_bias != nullptr) {
    for (std::size_t i = 0; i < n_experts; ++i) biased[i] = p[i] + rule.selection_bias[i];
    keys = biased;
  }
  select_largest(keys, n_experts, rule.top_k, ids);
  weigh(p, rule, ids, weights);
}

}  // namespace terrace::kernels
