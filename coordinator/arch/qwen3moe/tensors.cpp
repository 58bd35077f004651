#include "coordinator/arch/qwen3moe/tensors.h"

#include <fmt/format.h>

#include "coordinator/arch/parts/tensors.h"

namespace terrace::arch::qwen3moe {
namespace {

// Rows of the embedding: the key's number, or what the tensor has.
Result<std::uint64_t> vocabulary_of(const gguf::File& file, const Parameters& p) {
  if (p.vocabulary) return std::uint64_t{*p.vocabulary};
  TERRACE_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, file.get_tensor("token_embd.weight"));
  if (tensor->shape[1] > kMostTokens)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} has {} rows; token ids are 31 bits", file.tensor_place(*tensor), tensor->shape[1]));
  return tensor->shape[1];
}

Status bind_attention(const TensorBinder& binder, const std::string& block, const Parameters& p, GqaWeights& weights) {
  const GqaShape& a = p.attention;
  const std::uint64_t d = p.d_model;
  TERRACE_ASSIGN_OR_RETURN(weights.q, binder.matrix(block + "attn_q", d, std::uint64_t{a.n_heads} * a.key_dim));
  TERRACE_ASSIGN_OR_RETURN(weights.k, binder.matrix(block + "attn_k", d, std::uint64_t{a.n_kv_heads} * a.key_dim));
  TERRACE_ASSIGN_OR_RETURN(weights.v, binder.matrix(block + "attn_v", d, std::uint64_t{a.n_kv_heads} * a.value_dim));
  TERRACE_ASSIGN_OR_RETURN(weights.output,
                           binder.matrix(block + "attn_output", std::uint64_t{a.n_heads} * a.value_dim, d));
  TERRACE_ASSIGN_OR_RETURN(weights.q_norm, binder.vector(block + "attn_q_norm", a.key_dim));
  TERRACE_ASSIGN_OR_RETURN(weights.k_norm, binder.vector(block + "attn_k_norm", a.key_dim));
  return binder.absent(block + "attn_sinks.weight");
}

Status bind_experts(const TensorBinder& binder, const std::string& block, const Parameters& p, Layer& layer) {
  const std::uint64_t d = p.d_model, ff = p.expert_ff, n = p.n_experts;
  TERRACE_ASSIGN_OR_RETURN(layer.expert_norm, binder.vector(block + "ffn_norm", d));
  TERRACE_ASSIGN_OR_RETURN(layer.router, binder.matrix(block + "ffn_gate_inp", d, n));
  TERRACE_RETURN_IF_ERROR(binder.absent(block + "exp_probs_b.bias"));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t gate_and_up, binder.gate_and_up_bytes(block, d, ff, n));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t down, binder.expert_bytes(block + "ffn_down_exps", ff, d, n));
  layer.expert_bytes = gate_and_up + down;
  return {};
}

}  // namespace

std::uint64_t Tensors::bytes_per_step(std::uint32_t top_k) const {
  std::uint64_t sum = embedding.row_bytes + head.bytes();
  for (const Layer& layer : layers) {
    const GqaWeights& a = layer.attention;
    sum += a.q.bytes() + a.k.bytes() + a.v.bytes() + a.output.bytes() + layer.router.bytes();
    sum += top_k * layer.expert_bytes;
  }
  return sum;
}

std::vector<Matrix*> Tensors::dense_products() {
  std::vector<Matrix*> all;
  for (Layer& layer : layers)
    for (Matrix* matrix : {&layer.attention.q, &layer.attention.k, &layer.attention.v, &layer.attention.output})
      all.push_back(matrix);
  all.push_back(&head);
  return all;
}

Result<Tensors> bind_tensors(const gguf::File& file, const Parameters& p, const TrunkOptions& options) {
  const TensorBinder binder(file, options);
  Tensors tensors;
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t vocabulary, vocabulary_of(file, p));
  TERRACE_ASSIGN_OR_RETURN(tensors.embedding, binder.matrix("token_embd", p.d_model, vocabulary));
  TERRACE_RETURN_IF_ERROR(binder.absent("rope_freqs.weight"));
  for (std::uint32_t i = 0; i < p.n_layers; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    Layer layer;
    TERRACE_ASSIGN_OR_RETURN(layer.attention_norm, binder.vector(block + "attn_norm", p.d_model));
    TERRACE_RETURN_IF_ERROR(bind_attention(binder, block, p, layer.attention));
    TERRACE_RETURN_IF_ERROR(bind_experts(binder, block, p, layer));
    tensors.layers.push_back(layer);
  }
  TERRACE_ASSIGN_OR_RETURN(tensors.output_norm, binder.vector("output_norm", p.d_model));
  tensors.head = tensors.embedding;
  if (file.find_tensor("output.weight") != nullptr) {
    TERRACE_ASSIGN_OR_RETURN(tensors.head, binder.matrix("output", p.d_model, vocabulary));
  }
  return tensors;
}

}  // namespace terrace::arch::qwen3moe
