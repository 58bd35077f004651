#include "tests/tools/random_model/layout.h"

#include <fmt/format.h>

namespace terrace::tools {
namespace {

enum class Role : std::uint8_t {
  kNorm,
  kRouter,
  kEmbedding,
  kOutput,
  kAttnQ,
  kAttnK,
  kAttnV,
  kAttnOutput,
  kGateUp,
  kDown
};

// The layers to which a stock "_M" mix gives more bits.
bool more_bits(std::uint32_t layer, std::uint32_t n) {
  return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

TensorType q4_k_m_type(const RandomModel& model, Role role, std::uint32_t layer) {
  // The quantiser's special case, made for one model of 8 experts and kept since.
  if (model.experts == 8) {
    if (role == Role::kAttnV || role == Role::kAttnK) return TensorType::kQ8_0;
    if (role == Role::kAttnOutput) return TensorType::kQ5_K;
  }
  switch (role) {
    case Role::kOutput:
      return TensorType::kQ6_K;
    case Role::kAttnV:
    case Role::kDown:
      return more_bits(layer, model.layers) ? TensorType::kQ6_K : TensorType::kQ4_K;
    default:
      return TensorType::kQ4_K;
  }
}

TensorType wanted_type(const RandomModel& model, Role role, std::uint32_t layer) {
  if (role == Role::kNorm || role == Role::kRouter) return TensorType::kF32;
  switch (model.mix) {
    case Mix::kF32:
      return TensorType::kF32;
    case Mix::kF16:
      return TensorType::kF16;
    case Mix::kBF16:
      return TensorType::kBF16;
    case Mix::kQ8_0:
      return TensorType::kQ8_0;
    case Mix::kQ4_0:
      return role == Role::kOutput ? TensorType::kQ6_K : TensorType::kQ4_0;
    case Mix::kQ4_K_M:
      return q4_k_m_type(model, role, layer);
  }
  return TensorType::kF32;
}

// A type of smaller blocks where the rows are no whole blocks of the wanted one.
TensorType fitting_type(TensorType wanted, std::uint64_t row) {
  if (row % info(wanted).block_values == 0) return wanted;
  const auto smaller = [&] {
    switch (wanted) {
      case TensorType::kQ4_K:
        return TensorType::kQ5_0;
      case TensorType::kQ5_K:
        return TensorType::kQ5_1;
      case TensorType::kQ6_K:
        return TensorType::kQ8_0;
      default:
        return TensorType::kF16;
    }
  }();
  return row % info(smaller).block_values == 0 ? smaller : TensorType::kF16;
}

class Planner {
 public:
  explicit Planner(const RandomModel& model) : model_(model) {}

  std::vector<TensorPlan> plan() {
    const std::uint64_t d = model_.d_model;
    add("token_embd.weight", Role::kEmbedding, 0, {d, model_.vocab});
    for (std::uint32_t layer = 0; layer < model_.layers; ++layer) add_layer(layer);
    add("output_norm.weight", Role::kNorm, 0, {d});
    add("output.weight", Role::kOutput, 0, {d, model_.vocab});
    return std::move(tensors_);
  }

 private:
  void add(std::string name, Role role, std::uint32_t layer, std::vector<std::uint64_t> shape) {
    const TensorType type = fitting_type(wanted_type(model_, role, layer), shape[0]);
    const Fill fill = role == Role::kNorm ? Fill::kNorm : Fill::kWeights;
    const float scale = role == Role::kEmbedding ? model_.embedding_scale : 1;
    tensors_.push_back({std::move(name), type, std::move(shape), fill, scale});
  }

  void add_layer(std::uint32_t layer) {
    const auto block = [&](const char* name, Role role, std::vector<std::uint64_t> shape) {
      add(fmt::format("blk.{}.{}.weight", layer, name), role, layer, std::move(shape));
    };
    const std::uint64_t d = model_.d_model;
    const std::uint64_t hd = model_.head_dim;
    const std::uint64_t q_width = hd * model_.heads;
    const std::uint64_t kv_width = hd * model_.kv_heads;
    block("attn_norm", Role::kNorm, {d});
    block("attn_q", Role::kAttnQ, {d, q_width});
    block("attn_k", Role::kAttnK, {d, kv_width});
    block("attn_v", Role::kAttnV, {d, kv_width});
    block("attn_output", Role::kAttnOutput, {q_width, d});
    block("attn_q_norm", Role::kNorm, {hd});
    block("attn_k_norm", Role::kNorm, {hd});
    block("ffn_norm", Role::kNorm, {d});
    block("ffn_gate_inp", Role::kRouter, {d, model_.experts});
    block("ffn_gate_exps", Role::kGateUp, {d, model_.ff, model_.experts});
    block("ffn_up_exps", Role::kGateUp, {d, model_.ff, model_.experts});
    block("ffn_down_exps", Role::kDown, {model_.ff, d, model_.experts});
  }

  const RandomModel& model_;
  std::vector<TensorPlan> tensors_;
};

}  // namespace

std::vector<TensorPlan> plan_tensors(const RandomModel& model) { return Planner(model).plan(); }

std::uint32_t file_type(Mix mix) {
  switch (mix) {
    case Mix::kF32:
      return 0;
    case Mix::kF16:
      return 1;
    case Mix::kQ4_0:
      return 2;
    case Mix::kQ8_0:
      return 7;
    case Mix::kQ4_K_M:
      return 15;
    case Mix::kBF16:
      return 32;
  }
  return 0;
}

}  // namespace terrace::tools
