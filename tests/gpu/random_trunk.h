// A trunk with random weights on a card, without a model file: for its test and its benchmark.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "kernels/card/card_trunk.h"
#include "kernels/card/expert_card.h"

namespace terrace::test {

using kernels::CardTrunkLayer;
using kernels::CardTrunkModel;
using kernels::ExpertCard;
using kernels::HostMatrix;
using kernels::SlabView;

struct TrunkShape {
  std::uint32_t n_layers = 0, d_model = 0, n_experts = 0, top_k = 0, ff = 0, vocabulary = 0;
  std::uint32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
};

// Random weights of some size: scales are small, so that values stay finite.
class RandomWeights {
 public:
  HostMatrix matrix(TensorType type, std::uint32_t rows, std::uint32_t cols) {
    std::vector<std::byte>& bytes = made_[std::to_string(static_cast<int>(type)) + "/" + std::to_string(rows * cols)];
    if (bytes.empty()) fill(bytes, type, rows, cols);
    return {type, bytes.data(), rows, cols};
  }
  // One that no other has; until the next of these.
  HostMatrix another(TensorType type, std::uint32_t rows, std::uint32_t cols) {
    fill(another_, type, rows, cols);
    return {type, another_.data(), rows, cols};
  }
  const float* norm(std::uint32_t n) {
    TERRACE_CHECK(n <= ones_.size(), "a norm wider than any model here");
    return ones_.data();
  }

 private:
  void fill(std::vector<std::byte>& bytes, TensorType type, std::uint32_t rows, std::uint32_t cols) {
    bytes.resize(rows * row_bytes(type, cols));
    if (type == TensorType::kF32) {
      std::normal_distribution<float> bell(0.0f, 0.02f);
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
        const float value = bell(rng_);
        std::memcpy(bytes.data() + i, &value, sizeof value);
      }
      return;
    }
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const std::uint64_t word = rng_();
      std::memcpy(bytes.data() + i, &word, sizeof word);
    }
    const std::size_t block = info(type).block_bytes;
    const std::uint16_t small = 0x0400;  // f16, 6e-5
    for (std::size_t i = 0; i < bytes.size(); i += block) {
      std::memcpy(bytes.data() + i + (type == TensorType::kQ6_K ? 208 : 0), &small, sizeof small);
      if (type == TensorType::kQ4_K) std::memcpy(bytes.data() + i + 2, &small, sizeof small);
    }
  }

  std::mt19937_64 rng_{20281};
  std::map<std::string, std::vector<std::byte>> made_;
  std::vector<std::byte> another_;
  std::vector<float> ones_ = std::vector<float>(8192, 1.0f);
};

// Q4_K_M: half of the layers have V and down in Q6_K.
inline TensorType better_type(std::uint32_t layer) { return layer % 2 == 0 ? TensorType::kQ6_K : TensorType::kQ4_K; }

inline CardTrunkModel make_model(const TrunkShape& shape, RandomWeights& weights) {
  CardTrunkModel model;
  model.d_model = shape.d_model;
  model.vocabulary = shape.vocabulary;
  model.n_heads = shape.n_heads;
  model.n_kv_heads = shape.n_kv_heads;
  model.key_dim = model.value_dim = model.n_rot = shape.head_dim;
  model.score_scale = 0.088388f;
  model.attention_norm_eps = model.norm_eps = 1e-6f;
  model.n_experts = shape.n_experts;
  model.top_k = shape.top_k;
  for (std::uint32_t i = 0; i < shape.n_layers; ++i) {
    CardTrunkLayer layer;
    layer.attention_norm = layer.expert_norm = weights.norm(shape.d_model);
    layer.q_norm = layer.k_norm = weights.norm(shape.head_dim);
    layer.q = weights.matrix(TensorType::kQ4_K, shape.n_heads * shape.head_dim, shape.d_model);
    layer.k = weights.matrix(TensorType::kQ4_K, shape.n_kv_heads * shape.head_dim, shape.d_model);
    layer.v = weights.matrix(better_type(i), shape.n_kv_heads * shape.head_dim, shape.d_model);
    layer.output = weights.matrix(TensorType::kQ4_K, shape.d_model, shape.n_heads * shape.head_dim);
    layer.router = weights.matrix(TensorType::kF32, shape.n_experts, shape.d_model);
    layer.experts = {TensorType::kQ4_K, TensorType::kQ4_K, better_type(i), shape.d_model, shape.ff};
    model.layers.push_back(layer);
  }
  model.output_norm = weights.norm(shape.d_model);
  model.head = weights.matrix(TensorType::kQ6_K, shape.vocabulary, shape.d_model);
  return model;
}

// Whether experts of a type have the same bytes, which are made faster, or each its own.
enum class Slabs : std::uint8_t { kAlike, kDistinct };

// Every expert's slab in `memory`, a part of the card's, one behind the other.
inline Result<std::vector<SlabView>> place_slabs(ExpertCard& card, const CardTrunkModel& model, RandomWeights& weights,
                                                 std::span<std::byte> memory, Slabs kind = Slabs::kAlike) {
  TERRACE_ASSIGN_OR_RETURN(const auto writer, card.make_writer());
  std::vector<SlabView> slabs;
  const auto place = [&](TensorType type, std::uint32_t rows, std::uint32_t cols) -> Result<const std::byte*> {
    const HostMatrix matrix =
        kind == Slabs::kAlike ? weights.matrix(type, rows, cols) : weights.another(type, rows, cols);
    const std::size_t bytes = (matrix.bytes() + 255) / 256 * 256;
    TERRACE_CHECK(bytes <= memory.size(), "memory for every slab");
    TERRACE_RETURN_IF_ERROR(writer->write(memory.data(), {matrix.data, matrix.bytes()}));
    const std::byte* const at = memory.data();
    memory = memory.subspan(bytes);
    return at;
  };
  for (const CardTrunkLayer& layer : model.layers)
    for (std::uint32_t e = 0; e < model.n_experts; ++e) {
      SlabView slab;
      TERRACE_ASSIGN_OR_RETURN(slab.gate, place(layer.experts.gate, layer.experts.ff, layer.experts.d_model));
      TERRACE_ASSIGN_OR_RETURN(slab.up, place(layer.experts.up, layer.experts.ff, layer.experts.d_model));
      TERRACE_ASSIGN_OR_RETURN(slab.down, place(layer.experts.down, layer.experts.d_model, layer.experts.ff));
      slabs.push_back(slab);
    }
  return slabs;
}

// Rows of one stream behind `size.most_keys - size.n_rows` others; the last n_wanted want logits. x: of all rows.
inline void fill_step(const CardTrunkModel& model, const kernels::CardStepSize& size, std::span<const float> x,
                      const kernels::CardStepInput& in) {
  const std::uint32_t depth = size.most_keys - size.n_rows;
  for (std::size_t i = 0; i < std::size_t{size.n_rows} * model.d_model; ++i) in.x[i] = x[i];
  for (std::size_t i = 0; i < std::size_t{size.n_rows} * model.n_rot / 2; ++i) {
    in.cosines[i] = 0.8f;
    in.sines[i] = 0.6f;
  }
  for (std::uint32_t i = 0; i < size.n_rows; ++i) {
    in.positions[i] = depth + i;
    in.n_keys[i] = depth + i + 1;
    in.tables[i] = 0;
  }
  for (std::uint32_t i = 0; i < size.n_wanted; ++i) in.wanted[i] = size.n_rows - size.n_wanted + i;
  for (std::uint32_t i = 0; i < in.blocks_stride; ++i) in.blocks[i] = i;
}

}  // namespace terrace::test
