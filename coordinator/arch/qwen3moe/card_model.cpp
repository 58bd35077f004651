#include "coordinator/arch/qwen3moe/card_model.h"

#include <utility>

#include "common/manifest/experts.h"
#include "coordinator/arch/parts/steps_on_card.h"
#include "coordinator/arch/qwen3moe/trunk.h"
#include "coordinator/legs/file_slabs.h"

namespace terrace::arch::qwen3moe {
namespace {

kernels::HostMatrix on_host(const Matrix& matrix) {
  return {matrix.kernels.type, matrix.data, static_cast<std::uint32_t>(matrix.rows),
          static_cast<std::uint32_t>(matrix.cols)};
}

kernels::CardTrunkLayer card_layer(const Layer& layer, const kernels::ExpertShape& experts) {
  const GqaWeights& attention = layer.attention;
  return {.attention_norm = layer.attention_norm,
          .q = on_host(attention.q),
          .k = on_host(attention.k),
          .v = on_host(attention.v),
          .output = on_host(attention.output),
          .q_norm = attention.q_norm,
          .k_norm = attention.k_norm,
          .expert_norm = layer.expert_norm,
          .router = on_host(layer.router),
          .experts = experts};
}

Result<kernels::CardTrunkModel> card_model_of(const gguf::File& file, const Model& model, int shift) {
  TERRACE_ASSIGN_OR_RETURN(const manifest::ModelExperts experts, manifest::find_experts(file));
  const Parameters& p = model.parameters;
  const GqaShape& a = p.attention;
  kernels::CardTrunkModel card;
  card.d_model = p.d_model;
  card.vocabulary = model.info.vocabulary;
  card.n_heads = a.n_heads;
  card.n_kv_heads = a.n_kv_heads;
  card.key_dim = a.key_dim;
  card.value_dim = a.value_dim;
  card.n_rot = a.n_rot;
  card.pairing = a.pairing;
  card.score_scale = a.score_scale;
  card.attention_norm_eps = a.norm_eps;
  card.norm_eps = p.norm_eps;
  card.n_experts = p.n_experts;
  card.top_k = p.top_k;
  card.scales_weights = p.expert_scale.has_value();
  card.expert_scale = p.expert_scale.value_or(1.0f);
  card.shift = shift;
  for (std::size_t i = 0; i < model.tensors.layers.size(); ++i)
    card.layers.push_back(card_layer(model.tensors.layers[i], legs::expert_shape(experts.layers[i].shape)));
  card.output_norm = model.tensors.output_norm;
  card.head = on_host(model.tensors.head);
  return card;
}

}  // namespace

Result<kernels::CardTrunkModel> card_model(const gguf::File& file, const TrunkOptions& options) {
  if (options.activations != kernels::Activations::kQuantised)
    return Error(ErrorCode::kUnsupported, "a card's trunk quantises activations (--activations)");
  TERRACE_ASSIGN_OR_RETURN(const Model model, read_model(file, options));
  return card_model_of(file, model, options.shift);
}

Result<std::unique_ptr<Trunk>> make_card_trunk(const gguf::File& file, Model model, const TrunkOptions& options,
                                               const kernels::Ops& ops, legs::RoutedExperts& experts,
                                               Parallel& parallel) {
  TERRACE_ASSIGN_OR_RETURN(kernels::CardTrunkModel on_card, card_model_of(file, model, options.shift));
  TERRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<kernels::CardTrunk> card,
      options.card->make_trunk(std::move(on_card), *options.on_card, options.card_memory, options.on_card_progress));
  StepsOnCardParts parts{.info = std::move(model.info),
                         .cache = model.cache,
                         .attention = model.parameters.attention,
                         .embedding = model.tensors.embedding,
                         .options = options,
                         .ops = ops,
                         .card = std::move(card)};
  parts.options.on_card_progress = {};  // was for loading
  return std::unique_ptr<Trunk>(std::make_unique<StepsOnCard>(std::move(parts), experts, parallel));
}

}  // namespace terrace::arch::qwen3moe
