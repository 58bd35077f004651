#include "kernels/cuda/trunk/plan.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/expert_gemv/gemv_group.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint64_t kAlignment = 256;
// Splits of many rows at great depth would take gigabytes: these are for the rows of a prompt to attend by thread
// blocks that go through all of them, which needs room for one, or in several launches.
constexpr std::uint64_t kMostPartialBytes = std::uint64_t{64} << 20;

// Takes pieces one behind the other.
class Pen {
 public:
  explicit Pen(std::uint64_t begin = 0) : at_(begin) {}
  std::uint64_t take(std::uint64_t bytes) {
    const std::uint64_t begin = at_;
    at_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  std::uint64_t at() const { return at_; }

 private:
  std::uint64_t at_;
};

std::uint64_t card_row(ActivationClass activation, std::uint32_t cols) {
  return card_row_layout(block_values(activation), cols).bytes;
}

std::uint32_t splits(std::uint32_t keys) {
  return static_cast<std::uint32_t>((keys + kSplitPositions - 1) / kSplitPositions);
}

std::uint64_t partial_bytes_a_row(const CardTrunkModel& model, std::uint32_t keys) {
  return std::uint64_t{model.n_heads} * splits(keys) * (model.value_dim + 2) * sizeof(float);
}

// What a layer works in.
void lay_out_shared(const CardTrunkModel& model, const CardStepSize& size, std::uint64_t begin, StepLayout& at) {
  const std::uint64_t n = size.n_rows, d = model.d_model, pairs = n * model.top_k;
  std::uint32_t ff = 0;
  for (const CardTrunkLayer& layer : model.layers) ff = std::max(ff, layer.experts.ff);
  const std::uint32_t o_width = model.n_heads * model.value_dim;
  const std::uint64_t groups = std::min<std::uint64_t>(pairs, model.n_experts);
  const std::uint64_t row_bytes = partial_bytes_a_row(model, size.most_keys);
  const std::uint64_t one_split_bytes = n * partial_bytes_a_row(model, 1);
  Pen pen(begin);
  const auto words = [&](std::uint64_t count) { return pen.take(count * 4); };
  at.h = words(n * d);
  at.rows_32 = pen.take(n * card_row(ActivationClass::kA8x32, model.d_model));
  at.rows_256 = pen.take(n * card_row(ActivationClass::kA8x256, model.d_model));
  at.q = words(n * model.n_heads * model.key_dim);
  at.k = words(n * model.n_kv_heads * model.key_dim);
  at.v = words(n * model.n_kv_heads * model.value_dim);
  // Never less for more rows or keys.
  at.partials_bytes = std::max(std::min(n * row_bytes, std::max(kMostPartialBytes, row_bytes)), one_split_bytes);
  at.partials = pen.take(at.partials_bytes);
  at.o = pen.take(n * card_row(ActivationClass::kF32, o_width));
  at.delta = words(n * d);
  at.choices = words(n * model.n_experts);
  at.gate_up_groups = pen.take(2 * groups * sizeof(GemvGroup));
  at.down_groups = pen.take(groups * sizeof(GemvGroup));
  at.x_rows = words(2 * pairs);
  at.gate_up = words(2 * pairs * ff);
  at.between = pen.take(pairs * card_row(ActivationClass::kF32, ff));
  at.logits = words(std::uint64_t{std::min(size.n_wanted, kHeadRows)} * model.vocabulary);
  at.end = pen.at();
}

}  // namespace

TrunkWeights lay_out_weights(const CardTrunkModel& model, std::uint64_t begin) {
  Pen pen(begin);
  TrunkWeights at;
  const auto floats = [&](std::uint64_t n) { return pen.take(n * sizeof(float)); };
  for (const CardTrunkLayer& layer : model.layers) {
    TrunkWeights::Layer one;
    one.attention_norm = floats(model.d_model);
    one.q = pen.take(layer.q.bytes());
    one.k = pen.take(layer.k.bytes());
    one.v = pen.take(layer.v.bytes());
    one.q_norm = floats(model.key_dim);
    one.k_norm = floats(model.key_dim);
    one.output = pen.take(layer.output.bytes());
    one.expert_norm = floats(model.d_model);
    one.router = pen.take(layer.router.bytes());
    at.layers.push_back(one);
  }
  at.output_norm = floats(model.d_model);
  at.head = pen.take(model.head.bytes());
  at.slabs = pen.take(model.layers.size() * std::uint64_t{model.n_experts} * sizeof(SlabView));
  at.end = pen.at();
  return at;
}

TrunkCache lay_out_cache(const CardTrunkModel& model, const CardTrunkLimits& limits, std::uint64_t begin) {
  const std::uint64_t position = std::uint64_t{model.n_kv_heads} * bytes(limits.kv);
  TrunkCache at;
  at.k_block_bytes = position * model.key_dim * kKvBlockPositions;
  at.v_block_bytes = position * model.value_dim * kKvBlockPositions;
  at.k_layer_bytes = at.k_block_bytes * limits.max_kv_blocks;
  at.v_layer_bytes = at.v_block_bytes * limits.max_kv_blocks;
  Pen pen(begin);
  at.k = pen.take(at.k_layer_bytes * model.layers.size());
  at.v = pen.take(at.v_layer_bytes * model.layers.size());
  at.end = pen.at();
  return at;
}

StepLayout lay_out_step(const CardTrunkModel& model, const CardTrunkLimits& limits, const CardStepSize& size,
                        const StepPlace& place) {
  const std::uint64_t n = size.n_rows, d = model.d_model, pairs = n * model.top_k;
  Pen pen(place.own);
  StepLayout at;
  const auto words = [&](std::uint64_t count) { return pen.take(count * 4); };
  at.x = words(n * d);
  at.cosines = words(n * (model.n_rot / 2));
  at.sines = words(n * (model.n_rot / 2));
  at.positions = words(n);
  at.n_keys = words(n);
  at.tables = words(n);
  at.wanted = words(size.n_wanted);
  at.blocks = words(size.n_tables * ((limits.context + kKvBlockPositions - 1) / kKvBlockPositions));
  at.step = words(1);
  at.in_bytes = pen.at() - at.x;

  at.slots = words(pairs);
  at.out = words(pairs * d);
  at.sums = pen.take(n * d * sizeof(std::int64_t));
  at.weights = words(pairs);
  at.failures = words(n);
  at.greedy = words(2 * std::uint64_t{size.n_wanted});
  at.ids = pen.take(model.layers.size() * pairs * sizeof(std::uint16_t));
  at.own_end = pen.at();
  lay_out_shared(model, size, place.shared, at);
  return at;
}

StepRoom room_for_steps(const CardTrunkModel& model, const CardTrunkLimits& limits) {
  // Of a part's own memory. Each is rounded up in each part: of p parts, at most p <= 2 * (p - 1) times in all.
  constexpr std::uint64_t kOwnPieces = 16;
  const std::uint32_t tables = std::min(limits.max_rows, limits.max_streams);
  const StepLayout most = lay_out_step(model, limits, {limits.max_rows, tables, limits.max_rows, limits.context}, {});
  const StepLayout none = lay_out_step(model, limits, {0, tables, 0, 0}, {});  // tables of a part without rows
  const std::uint64_t further = (limits.max_parts - 1) * (none.in_bytes + 2 * kOwnPieces * kAlignment);
  return {.in = most.in_bytes + further,
          .back = most.own_end - most.weights + further,
          .own = most.own_end + further,
          .shared = most.end - most.h};
}

std::uint64_t trunk_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) {
  const std::uint64_t weights = lay_out_weights(model, 0).end;
  return lay_out_cache(model, limits, weights).end + room_for_steps(model, limits).bytes();
}

TrunkPinned lay_out_pinned(const CardTrunkModel& model, const CardTrunkLimits& limits) {
  const StepRoom room = room_for_steps(model, limits);
  const std::uint64_t row_values = std::uint64_t{limits.max_rows} * model.d_model;
  const std::uint64_t logits = std::uint64_t{std::min(limits.max_rows, kHeadRows)} * model.vocabulary;
  TrunkPinned at;
  at.in = room.in;
  at.back_rows = room.back;
  at.back_logits = at.back_rows + row_values * sizeof(float);
  at.back = at.back_logits + logits * sizeof(float);
  at.sums = row_values * sizeof(std::int64_t);
  at.flags = 2 * model.layers.size() * kFlagBytes;
  return at;
}

std::uint32_t keys_of_graph(std::uint32_t most_keys, std::uint32_t context) {
  const auto whole_blocks =
      static_cast<std::uint32_t>((context + kKvBlockPositions - 1) / kKvBlockPositions * kKvBlockPositions);
  return std::min(std::bit_ceil(splits(most_keys)) * static_cast<std::uint32_t>(kSplitPositions), whole_blocks);
}

}  // namespace terrace::kernels::cuda
