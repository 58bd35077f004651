// Where a model file holds its routed experts: per layer the types, the shapes and the three stacks. Read from the
// tensor table alone, so it costs nothing; the hashes are the manifest's (manifest.h).
//
// Threads  Plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "common/gguf/file.h"

namespace terrace::manifest {

inline constexpr std::uint32_t kMaxExperts = 65536;   // an expert's number travels as u16
inline constexpr std::uint32_t kMaxWidth = 1u << 24;  // d_model and ff: keeps every size far below 2^63
inline constexpr std::uint32_t kMaxLayers = 65536;
inline constexpr int kDefaultShift = 24;  // docs/numerics.md 5
inline constexpr int kMinShift = 16;
inline constexpr int kMaxShift = 36;

struct ExpertTypes {
  TensorType gate = TensorType::kF32;
  TensorType up = TensorType::kF32;
  TensorType down = TensorType::kF32;
  bool operator==(const ExpertTypes&) const = default;
};

// What all experts of a layer have in common.
struct LayerShape {
  ExpertTypes types;
  std::uint32_t d_model = 0;
  std::uint32_t ff = 0;
  std::uint32_t n_experts = 0;  // 0: the layer has no routed experts, and types and ff mean nothing

  std::uint64_t gate_bytes() const { return ff * row_bytes(types.gate, d_model); }
  std::uint64_t up_bytes() const { return ff * row_bytes(types.up, d_model); }
  std::uint64_t down_bytes() const { return d_model * row_bytes(types.down, ff); }
  std::uint64_t slab_bytes() const { return n_experts == 0 ? 0 : gate_bytes() + up_bytes() + down_bytes(); }
  bool operator==(const LayerShape&) const = default;
};

// kCorrupt: rows that are no whole blocks of their type, a width of 0 or beyond kMaxWidth.
Status check_layer_shape(const LayerShape& shape);

// One of gate, up, down of all experts of a layer.
struct PartLocation {
  std::string tensor;  // its name, for messages
  std::uint32_t shard = 0;
  std::uint64_t file_offset = 0;  // of expert 0, absolute in the shard
  std::uint64_t stride = 0;       // bytes from one expert to the next
  std::uint64_t bytes = 0;        // of one expert; less than stride where gate and up are fused
};

struct LayerExperts {
  LayerShape shape;
  PartLocation gate;  // [ff, d_model] of each expert
  PartLocation up;    // [ff, d_model]
  PartLocation down;  // [d_model, ff]
};

struct ModelExperts {
  std::string architecture;
  std::uint32_t d_model = 0;
  std::uint32_t n_experts = 0;  // of every layer that has any
  std::uint32_t top_k = 0;
  int shift = kDefaultShift;
  std::vector<LayerExperts> layers;  // one for each block of the model

  std::uint64_t slab_bytes(std::uint32_t layer) const { return layers[layer].shape.slab_bytes(); }
  std::uint64_t total_bytes() const;  // of all slabs
};

// Errors name file and key or tensor, found against expected.
//   kUnsupported  an architecture without routed experts or one that is not known; stacks with scales or biases
//   kNotFound     a key or a tensor is missing
//   kCorrupt      a key's value or a tensor's shape does not fit the others
Result<ModelExperts> find_experts(const gguf::File& file);

}  // namespace terrace::manifest
