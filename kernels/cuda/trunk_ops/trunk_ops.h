// What lies between the products of a step on a card, each as one launch: a step of one row is bound by the number of
// its launches, so norms, additions, checks and quantising are done where their values already are.
// Result   Equal by == to the scalar table of kernels/cpu/ops, operation by operation (docs/numerics.md 2, 4, 5, 8).
// Memory   All pointers are card memory.
// Threads  As Stream. Launches only.
// Errors   kInvalidArgument: a shape that cannot be. kInternal: the launch was refused; names the card and the sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cpu/ops/args.h"
#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/expert_gemv/gemv_group.h"
#include "kernels/cuda/kv/kv.h"

namespace terrace::kernels::cuda {

// What a layer's experts gave, on the card.
struct ExpertOutputs {
  const float* out = nullptr;           // [n_pairs, n]
  const std::int32_t* slots = nullptr;  // [n_rows, n_slots]: pair of each, or -1
  const float* weights = nullptr;       // [n_rows, n_slots]
  std::uint32_t n_slots = 0;
};

// A word of pinned host memory that is up in the step whose number it holds. Numbers rise: nobody takes it down.
struct HostFlag {
  std::uint32_t* word = nullptr;        // pinned host memory; null: none
  const std::uint32_t* step = nullptr;  // card memory: the number of the step
};

// x = x + what was computed, then its norm. Where the norm is not finite zeros go on
// instead, a part of the row at least.
struct ResidualArgs {
  float* x = nullptr;                   // [rows of the step, n]
  const std::uint32_t* rows = nullptr;  // [n_rows]: row of x of each row here; null: the same number
  std::uint32_t n_rows = 0;
  std::uint32_t n = 0;  // at most kMaxResidualValues
  // What is added: delta, or experts and sums or one of these, or nothing.
  const float* delta = nullptr;  // [n_rows, n]
  ExpertOutputs experts;
  const std::int64_t* sums = nullptr;  // [n_rows, n]
  HostFlag sums_flag;                  // the sums are pinned host memory, and there when it is up
  int shift = 24;                      // of experts and sums
  std::uint32_t experts_code = 0;      // a weighted output or a sum is out of range or not finite
  std::uint32_t added_code = 0;        // x is not finite

  const float* w = nullptr;  // [n]; null: x alone
  float eps = 0;
  std::uint32_t normed_code = 0;
  float* h = nullptr;  // [n_rows, n], or null
  CardRowsOut out[3];
  std::uint32_t* failures = nullptr;  // [rows of the step]
};
inline constexpr std::uint32_t kMaxResidualValues = 12032;  // a row lies in 47 KiB of shared memory
Status residual(const Stream& stream, const ResidualArgs& args);

// Norms of heads, RoPE, checks, and the place in the cache, of all heads of a row. What is not finite becomes zeros.
struct HeadsArgs {
  float* q = nullptr;        // [n_rows, n_heads, key_dim]: in place
  const float* k = nullptr;  // [n_rows, n_kv_heads, key_dim]
  const float* v = nullptr;  // [n_rows, n_kv_heads, value_dim]
  std::uint32_t n_rows = 0;
  std::uint32_t n_heads = 0;
  const float* q_norm = nullptr;  // [key_dim], or null: no norm
  const float* k_norm = nullptr;
  float eps = 0;
  std::uint32_t n_rot = 0;         // even, <= key_dim
  const float* cosines = nullptr;  // [n_rows, n_rot / 2]
  const float* sines = nullptr;
  RopePairing pairing = RopePairing::kNeox;
  KvCache cache;                             // its heads, key_dim (head_dim) and value_dim
  const std::uint32_t* streams = nullptr;    // [n_rows]: whose block table
  const std::uint32_t* positions = nullptr;  // [n_rows]
  std::uint32_t queries_code = 0, keys_code = 0, values_code = 0;
  std::uint32_t* failures = nullptr;  // [n_rows]
};
inline constexpr std::uint32_t kMaxHeadValues = 1024;
Status finish_heads(const Stream& stream, const HeadsArgs& args);

// finish_heads() and attend() in one launch, of a row that is alone (AttentionArgs): f16 keys and values, heads of 128
// values of which an even number shares a KV head, at most 1,024 positions.
struct HeadsAndAttentionArgs {
  HeadsArgs heads;          // q stays as it is
  AttentionArgs attention;  // q, out and scratch are not used; streams and cache are those of `heads`
  AttentionRows rows;
};
// Whether it is possible, and all thread blocks run on this card at once.
bool has_heads_and_attention(const Stream& stream, const HeadsAndAttentionArgs& args);
Status heads_and_attention(const Stream& stream, const HeadsAndAttentionArgs& args);

// Instead of the row of a pair whose expert another leg has: nobody computes it here.
inline constexpr std::uint32_t kPairElsewhere = ~0u;

// Experts as they lie on the card.
struct CardSlab {
  const std::byte* gate;
  const std::byte* up;
  const std::byte* down;
};

// Softmax router and, where wanted, its pairs sorted by expert, as groups for expert_gemv(). Where logits are not
// finite the row has failed and is routed as by zeros.
struct ChooseArgs {
  const float* logits = nullptr;  // [n_rows, n_experts]
  std::uint32_t n_rows = 0;
  std::uint32_t n_experts = 0;  // at most kMaxChosenExperts
  std::uint32_t top_k = 0;
  bool scaled = false;
  float scale = 1;
  std::uint16_t* ids = nullptr;  // [n_rows, top_k], in selection order
  float* weights = nullptr;      // [n_rows, top_k]
  std::uint32_t router_code = 0;
  std::uint32_t* failures = nullptr;  // [n_rows]

  const CardSlab* slabs = nullptr;  // [n_experts] of the layer; null: no pairs. Null parts: another leg's, no pair
  // n_groups = min(n_rows * top_k, n_experts). gate_up [2 * n_groups]: the gates, then the ups, whose rows come behind
  // those of the gates.
  GemvGroup* gate_up = nullptr;
  GemvGroup* down = nullptr;        // [n_groups]
  std::uint32_t* x_rows = nullptr;  // [2 * n_rows * top_k]: row of each pair, twice; kPairElsewhere: another leg's
  std::int32_t* slots = nullptr;    // [n_rows, top_k]: pair of each choice, or -1
};
inline constexpr std::uint32_t kMaxChosenExperts = 1024;
Status choose_experts(const Stream& stream, const ChooseArgs& args);

// residual(), the F32 router and choose_experts() of one row in one launch.
struct ResidualAndChoiceArgs {
  ResidualArgs residual;          // n_rows 1, no `rows`
  const float* router = nullptr;  // card memory [n_experts, n], 16-byte aligned
  ChooseArgs choice;              // `logits` is not used
};
// Whether it is possible on this card: its shared memory holds the router, and the shapes go in clusters.
bool has_residual_and_choice(const Stream& stream, const ResidualAndChoiceArgs& args);
Status residual_and_choice(const Stream& stream, const ResidualAndChoiceArgs& args);

// Card rows of SILU(gate) * up. Pairs elsewhere are passed over: what lies there may be of any earlier step.
struct ExpertRowsArgs {
  const float* gate = nullptr;  // [n_pairs, n]
  const float* up = nullptr;    // [n_pairs, n]
  std::uint32_t n_pairs = 0;
  std::uint32_t n = 0;
  CardRowsOut out;
  const std::uint32_t* x_rows = nullptr;  // [n_pairs]: whose failure, or kPairElsewhere
  std::uint32_t code = 0;
  std::uint32_t* failures = nullptr;
};
Status expert_rows(const Stream& stream, const ExpertRowsArgs& args);

// Copies a layer's rows and choices to pinned host memory and raises a flag there: what a host thread waits for. How
// others' sums come back is ResidualArgs::sums_flag.
struct HandOverArgs {
  const float* rows = nullptr;         // [n_values], a multiple of 4
  const std::uint16_t* ids = nullptr;  // [n_choices]
  const float* weights = nullptr;      // [n_choices]
  std::uint32_t n_values = 0;
  std::uint32_t n_choices = 0;
  float* host_rows = nullptr;  // pinned host memory
  std::uint16_t* host_ids = nullptr;
  float* host_weights = nullptr;
  HostFlag flag;
};
Status hand_over(const Stream& stream, const HandOverArgs& args);

}  // namespace terrace::kernels::cuda
