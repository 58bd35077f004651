// Where a trunk's weights, cache and the values between its kernels lie in card memory. Plain C++ from shapes alone, so
// it is tested without a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "kernels/card/card_trunk.h"

namespace terrace::kernels::cuda {

// Rows whose logits lie on the card at once.
inline constexpr std::uint32_t kHeadRows = 32;

// Offsets in bytes, each a multiple of 256.
struct TrunkWeights {
  struct Layer {
    std::uint64_t attention_norm = 0, q = 0, k = 0, v = 0, q_norm = 0, k_norm = 0, output = 0;
    std::uint64_t expert_norm = 0, router = 0;
  };
  std::vector<Layer> layers;
  std::uint64_t output_norm = 0, head = 0;
  std::uint64_t slabs = 0;  // CardSlab [n_layers, n_experts]
  std::uint64_t end = 0;
};
TrunkWeights lay_out_weights(const CardTrunkModel& model, std::uint64_t begin);

// The cache: K of all blocks of a layer, layer after layer, then V.
struct TrunkCache {
  std::uint64_t k = 0, v = 0;                          // of layer 0
  std::uint64_t k_layer_bytes = 0, v_layer_bytes = 0;  // of one layer, all blocks
  std::uint64_t k_block_bytes = 0, v_block_bytes = 0;  // of one block of one layer
  std::uint64_t end = 0;
};
TrunkCache lay_out_cache(const CardTrunkModel& model, const CardTrunkLimits& limits, std::uint64_t begin);

// The values of one step, or of a part of one, in two pieces. Its own: what goes to the card at once (pinned memory has
// the same layout), what lasts from layer to layer, and last what tells of choices and failures, copied back at once.
// And what a layer works in, which the parts of a step take in turn.
struct StepLayout {
  std::uint64_t x = 0;                                  // f32 [n_rows, d_model]: the residual
  std::uint64_t cosines = 0, sines = 0;                 // f32 [n_rows, n_rot / 2]
  std::uint64_t positions = 0, n_keys = 0, tables = 0;  // u32 [n_rows]
  std::uint64_t wanted = 0;                             // u32 [n_wanted]
  std::uint64_t blocks = 0;                             // u32 [n_tables, blocks of a context]
  std::uint64_t step = 0;                               // u32: the step's number, for flags
  std::uint64_t in_bytes = 0;                           // from x up to here

  std::uint64_t slots = 0;     // with `out`, `weights`: what the card's experts gave
  std::uint64_t out = 0;       // f32 [n_rows * top_k, d_model]
  std::uint64_t sums = 0;      // i64 [n_rows, d_model]
  std::uint64_t weights = 0;   // f32 [n_rows, top_k]
  std::uint64_t failures = 0;  // u32 [n_rows], and greedy: all bytes 0xff before a step, up to ids
  std::uint64_t greedy = 0;    // u64 [n_wanted]: keys of the largest logits
  std::uint64_t ids = 0;       // u16 [n_layers, n_rows, top_k]
  std::uint64_t own_end = 0;

  std::uint64_t h = 0;                      // f32 [n_rows, d_model]
  std::uint64_t rows_32 = 0, rows_256 = 0;  // card rows of h in the other classes
  std::uint64_t q = 0, k = 0, v = 0;        // f32
  std::uint64_t partials = 0;               // of attention
  std::uint64_t partials_bytes = 0;
  std::uint64_t o = 0;        // card rows [n_rows] of any class
  std::uint64_t delta = 0;    // f32 [n_rows, d_model]
  std::uint64_t choices = 0;  // f32 [n_rows, n_experts]
  std::uint64_t gate_up_groups = 0, down_groups = 0;
  std::uint64_t x_rows = 0;
  std::uint64_t gate_up = 0;  // f32 [2 * n_rows * top_k, ff]
  std::uint64_t between = 0;  // card rows [n_rows * top_k] of any class
  std::uint64_t logits = 0;   // f32 [kHeadRows at most, vocabulary]
  std::uint64_t end = 0;

  std::uint64_t back_bytes() const { return own_end - failures; }
};
// Where the two pieces begin.
struct StepPlace {
  std::uint64_t own = 0, shared = 0;
};
StepLayout lay_out_step(const CardTrunkModel& model, const CardTrunkLimits& limits, const CardStepSize& size,
                        const StepPlace& place);

// Room for the values of any step of the limits, however it is cut into parts.
struct StepRoom {
  std::uint64_t in = 0;      // what goes to the card
  std::uint64_t back = 0;    // what comes back of choices and failures: from weights to own_end
  std::uint64_t own = 0;     // of all parts together
  std::uint64_t shared = 0;  // what a layer works in
  std::uint64_t bytes() const { return own + shared; }
};
StepRoom room_for_steps(const CardTrunkModel& model, const CardTrunkLimits& limits);

// All of it: weights, cache, the largest step.
std::uint64_t trunk_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits);

// Pinned host memory of a trunk: four buffers.
inline constexpr std::uint64_t kFlagBytes = 64;  // a line of the cache to a flag
struct TrunkPinned {
  std::uint64_t in = 0;  // StepRoom::in
  // What comes back: weights, failures and choices of the parts, then rows [max_rows, d_model], then logits.
  std::uint64_t back = 0, back_rows = 0, back_logits = 0;
  std::uint64_t sums = 0;   // i64 [max_rows, d_model]
  std::uint64_t flags = 0;  // two a layer

  std::uint64_t bytes() const { return in + back + sums + flags; }
};
TrunkPinned lay_out_pinned(const CardTrunkModel& model, const CardTrunkLimits& limits);

// Keys for which a captured step is good: graphs are captured for few depths.
std::uint32_t keys_of_graph(std::uint32_t most_keys, std::uint32_t context);

}  // namespace terrace::kernels::cuda
