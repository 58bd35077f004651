#include "coordinator/arch/qwen3moe/parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "coordinator/arch/parts/keys.h"

namespace terrace::arch::qwen3moe {
namespace {

// Far above any model; they keep products of sizes within 64 bits before tensors bound them.
constexpr CountRange kLayers{1, 4096};
constexpr CountRange kWidth{1, 1u << 20};
constexpr CountRange kHeads{1, 4096};
constexpr CountRange kHeadDim{8, 4096};
constexpr CountRange kContext{1, 1u << 30};
constexpr CountRange kExperts{1, 65535};  // an expert's number travels as u16

// Keys of which the file may say nothing but this: what they stand for is no part of the architecture.
struct Neutral {
  const char* suffix;
  double value;
};
constexpr Neutral kNeutral[] = {
    {"expert_gating_func", 1},   // softmax
    {"expert_weights_norm", 1},  // always renormalised
    {"expert_shared_count", 0},       {"expert_group_count", 0},      {"expert_group_used_count", 0},
    {"leading_dense_block_count", 0}, {"nextn_predict_layers", 0},    {"attention.sliding_window", 0},
    {"attn_logit_softcapping", 0},    {"final_logit_softcapping", 0}, {"router_logit_softcapping", 0},
    {"rope.scaling.attn_factor", 1},
};

Status read_attention(const Keys& keys, Parameters& p) {
  GqaShape& a = p.attention;
  TERRACE_ASSIGN_OR_RETURN(a.n_heads, keys.uniform_count("attention.head_count", p.n_layers, kHeads));
  TERRACE_ASSIGN_OR_RETURN(a.n_kv_heads, keys.uniform_count("attention.head_count_kv", p.n_layers, kHeads, a.n_heads));
  if (a.n_heads % a.n_kv_heads != 0)
    return keys.bad(ErrorCode::kCorrupt, "attention.head_count_kv",
                    fmt::format("a divisor of the {} heads is needed", a.n_heads));
  const std::uint32_t head_dim = p.d_model / a.n_heads;
  TERRACE_ASSIGN_OR_RETURN(a.key_dim, keys.count("attention.key_length", kHeadDim, head_dim));
  TERRACE_ASSIGN_OR_RETURN(a.value_dim, keys.count("attention.value_length", kHeadDim, head_dim));
  if (a.key_dim % 8 != 0) return keys.bad(ErrorCode::kUnsupported, "attention.key_length", "a multiple of 8 is needed");
  if (a.value_dim % 8 != 0)
    return keys.bad(ErrorCode::kUnsupported, "attention.value_length", "a multiple of 8 is needed");
  const auto default_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.key_dim)));
  TERRACE_ASSIGN_OR_RETURN(a.score_scale, keys.positive("attention.scale", default_scale));
  TERRACE_ASSIGN_OR_RETURN(p.norm_eps, keys.positive("attention.layer_norm_rms_epsilon"));
  a.norm_eps = p.norm_eps;
  return {};
}

Status read_rope(const gguf::File& file, const Keys& keys, Parameters& p) {
  GqaShape& a = p.attention;
  a.pairing = kernels::RopePairing::kNeox;
  TERRACE_ASSIGN_OR_RETURN(a.n_rot, keys.count("rope.dimension_count", {2, a.key_dim}, a.key_dim));
  if (a.n_rot % 2 != 0) return keys.bad(ErrorCode::kCorrupt, "rope.dimension_count", "an even number is needed");
  TERRACE_ASSIGN_OR_RETURN(const float base, keys.positive("rope.freq_base", 10000.0f));
  a.rope_base = base;
  TERRACE_ASSIGN_OR_RETURN(const std::string_view type, file.get_string_or(keys.name("rope.scaling.type"), "linear"));
  if (type != "linear" && type != "none")
    return keys.bad(ErrorCode::kUnsupported, "rope.scaling.type", "this build scales positions by 'linear' or 'none'");
  TERRACE_ASSIGN_OR_RETURN(const float legacy, keys.positive("rope.scale_linear", 1.0f));
  TERRACE_ASSIGN_OR_RETURN(const float factor, keys.positive("rope.scaling.factor", legacy));
  if (type == "linear") a.rope_scaling.factor = 1.0 / static_cast<double>(factor);
  return {};
}

Status read_experts(const gguf::File& file, const Keys& keys, Parameters& p) {
  TERRACE_ASSIGN_OR_RETURN(p.n_experts, keys.count("expert_count", kExperts));
  TERRACE_ASSIGN_OR_RETURN(p.top_k, keys.count("expert_used_count", {1, CountRange{}.most}));
  if (p.top_k > p.n_experts)
    return keys.bad(ErrorCode::kCorrupt, "expert_used_count",
                    fmt::format("at most the {} experts can be used", p.n_experts));
  if (keys.has("expert_feed_forward_length")) {
    TERRACE_ASSIGN_OR_RETURN(p.expert_ff, keys.uniform_count("expert_feed_forward_length", p.n_layers, kWidth));
  } else {
    TERRACE_ASSIGN_OR_RETURN(const std::uint32_t ff, keys.uniform_count("feed_forward_length", p.n_layers, kWidth));
    if (ff % p.top_k != 0)
      return keys.bad(ErrorCode::kCorrupt, "feed_forward_length",
                      fmt::format("a multiple of the {} experts used is needed", p.top_k));
    p.expert_ff = ff / p.top_k;
  }
  TERRACE_ASSIGN_OR_RETURN(const float scale, file.get_f32_or(keys.name("expert_weights_scale"), 0.0f));
  if (scale != 0.0f && scale != 1.0f) p.expert_scale = scale;
  return {};
}

}  // namespace

Result<Parameters> read_parameters(const gguf::File& file) {
  const Keys keys(file, "qwen3moe");
  Parameters p;
  TERRACE_RETURN_IF_ERROR(keys.all_floats_finite());
  for (const Neutral& neutral : kNeutral) TERRACE_RETURN_IF_ERROR(keys.is_neutral(neutral.suffix, neutral.value));
  TERRACE_ASSIGN_OR_RETURN(p.n_layers, keys.count("block_count", kLayers));
  TERRACE_ASSIGN_OR_RETURN(p.d_model, keys.count("embedding_length", kWidth));
  TERRACE_ASSIGN_OR_RETURN(p.context, keys.count("context_length", kContext));
  if (keys.has("vocab_size")) {
    TERRACE_ASSIGN_OR_RETURN(p.vocabulary, keys.count("vocab_size", {1, kMostTokens}));
  }
  TERRACE_RETURN_IF_ERROR(read_attention(keys, p));
  TERRACE_RETURN_IF_ERROR(read_rope(file, keys, p));
  TERRACE_RETURN_IF_ERROR(read_experts(file, keys, p));
  return p;
}

}  // namespace terrace::arch::qwen3moe
