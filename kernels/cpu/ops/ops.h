// The CPU trunk's operations, to the bit (docs/numerics.md 4, 5, 8): one table per ISA, all equal by == to the
// scalar one. Pure functions over caller's memory; nothing allocates, nothing fails; callers split rows over threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/base/result.h"
#include "kernels/cpu/activations/activations.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops/args.h"

namespace terrace::kernels {

// How many splits a row with n_keys >= 1 keys has.
constexpr std::size_t attention_splits(std::size_t n_keys) { return (n_keys + kSplitPositions - 1) / kSplitPositions; }
// What one split gives: of each head the largest score, the sum of weights and the weighted values.
constexpr std::size_t attention_state_floats(std::size_t n_heads, std::size_t value_dim) {
  return n_heads * (value_dim + 2);
}
// What AttentionArgs::scratch must hold.
std::size_t attention_scratch_floats(std::size_t n_heads, std::size_t value_dim);

using ExpFn = void (*)(const float* x, std::size_t n, float* y);

struct Ops {
  Isa isa = Isa::kScalar;

  QuantizeRowFn quantize_row = nullptr;
  // Every exponent below all ones: no infinity, no NaN.
  bool (*all_finite)(const float* x, std::size_t n) = nullptr;
  // y[i] = (x[i] * r) * w[i], r = 1 / sqrt(ss / n + eps). y may be x.
  void (*rms_norm)(const float* x, const float* w, std::size_t n, float eps, float* y) = nullptr;
  // x[i] += y[i]
  void (*add)(float* x, const float* y, std::size_t n) = nullptr;
  // Rotates n_rot values of x in place; cosines and sines [n_rot / 2] as rope_table() gives them.
  void (*rope)(float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing) = nullptr;
  // h[i] = SILU(gate[i]) * up[i]. h may be gate.
  void (*silu_mul)(const float* gate, const float* up, std::size_t n, float* h) = nullptr;
  // The lowest index of the largest value; -0 equals +0. n >= 1, every value is finite.
  std::size_t (*largest)(const float* x, std::size_t n) = nullptr;
  // y[i] = EXP(x[i]). y may be x.
  ExpFn exp = nullptr;
  // y[i] = SILU(x[i]): for selftest and the checksums.
  void (*silu)(const float* x, std::size_t n, float* y) = nullptr;
  // sums[i] += rint(double(weight * out[i]) * 2^shift). False if some |weight * out[i]| >= 2^(51 - shift) or is not
  // finite: sums of this call are then undefined.
  bool (*add_fixed)(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums) = nullptr;
  // x[i] = float(double(sums[i]) * 2^-shift). False if some |sums[i]| >= 2^51.
  bool (*from_fixed)(const std::int64_t* sums, std::size_t n, int shift, float* x) = nullptr;
  // Stores one position of one KV head (rounding to nearest even) in a block laid out as args.h says; `slot` is the
  // position inside the block, the dimension a multiple of 8.
  void (*store_k)(const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block) = nullptr;
  void (*store_v)(const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block) = nullptr;
  // True if every value is finite and stays so when it is stored as `type`: f16 rounds |x| >= 65520 to infinity. A
  // K or V row for which it is false is "not finite" (docs/numerics.md) and must not be attended to.
  bool (*storable)(const float* x, std::size_t n, KvType type) = nullptr;
  // Attention of one row over one KV head, for the query heads that share it. A head's output does not depend on the
  // others, nor on what lies behind its keys. Scores that overflow give an output that is not finite.
  void (*attend)(const AttentionArgs& args) = nullptr;
  // attend() in two steps with the same bits: first every split of the keys is computed, by any calls in any order,
  // then the states of all of them are merged into args.out, and used up. attend_splits() leaves args.out alone.
  void (*attend_splits)(const AttentionArgs& args, const AttentionSplits& splits) = nullptr;
  void (*merge_splits)(const AttentionArgs& args, float* states) = nullptr;
};

// The widest table that `cpu` runs, or exactly the one of `forced`. kUnsupported as in the registry.
Result<Ops> select_ops(const CpuFeatures& cpu, std::optional<Isa> forced);
// Every table this build has, scalar first: what tests compare.
std::span<const Ops> all_ops();

// ---- tables and choices that need no ISA ----------------------------------------------------------------------------
struct RopeScaling {
  double factor = 1.0;     // the angle is multiplied by it
  double magnitude = 1.0;  // and cosine and sine by this
};
// cosines, sines [n_rot / 2] at `position`: angle = position * base^(-2p / n_rot) * factor, in double.
void rope_table(std::uint64_t position, std::size_t n_rot, double base, const RopeScaling& scaling, float* cosines,
                float* sines);

enum class RouterKind : std::uint8_t { kSoftmax, kSigmoid };
struct RouterRule {
  RouterKind kind = RouterKind::kSoftmax;
  std::size_t top_k = 0;
  const float* selection_bias = nullptr;  // [n_experts] or null
  bool clamp_sum = false;                 // S = max(S, 2^-14)
  std::optional<float> scale = std::nullopt;
};
// Chooses rule.top_k of n_experts by docs/numerics.md 8: ids and weights in selection order. scratch holds
// 2 * n_experts floats. Logits must be finite. `exp` is any table's: all give the same bits.
void route(const float* logits, std::size_t n_experts, const RouterRule& rule, ExpFn exp, float* scratch,
           std::uint16_t* ids, float* weights);

}  // namespace terrace::kernels
