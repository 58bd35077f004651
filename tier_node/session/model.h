// The model of a session, from the coordinator's manifest: shapes, slab ids, and the kernels this machine computes it
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/arena/slab_store.h"
#include "common/base/result.h"
#include "common/manifest/manifest.h"
#include "kernels/card/expert_card.h"
#include "kernels/cpu/isa.h"
#include "kernels/executor/executor.h"
#include "tier_node/session/epoch.h"

namespace terrace::node {

// What this machine computes with.
struct Machine {
  kernels::CpuFeatures cpu;
  std::optional<kernels::Isa> isa;            // forced
  const kernels::ExpertCard* card = nullptr;  // borrowed; null: none
};

class Model {
 public:
  // Beyond any model that exists; what a node keeps of a manifest is bounded by them.
  static constexpr std::uint32_t kMaxLayers = 4096;
  static constexpr std::uint64_t kMaxSlabs = std::uint64_t{1} << 21;

  struct Layer {
    bool has_experts = false;
    // Nothing below means anything without experts.
    kernels::ExpertKernels kernels;
    arena::SlabSizes sizes;
    bool on_card = false;  // the machine's card can compute them
  };

  // `bytes` come from a peer. kCorrupt: no manifest, or one slab id under two shapes. kUnsupported: names the layer and
  // the type that this machine has no kernel for. kRefused: SHIFT out of range, no layer with experts, widths that
  // differ, more than kMaxLayers or kMaxSlabs.
  static Result<Model> parse(std::span<const std::byte> bytes, const Machine& machine);
  // The same of a manifest's numbers and shapes alone, each within the ranges of manifest::parse(): a model whose slabs
  // have no ids (slab_id() means nothing), to be counted with.
  static Result<Model> outline(manifest::Manifest manifest, const Machine& machine);

  const security::Sha256& hash() const { return manifest_.hash; }
  std::uint64_t manifest_bytes() const { return manifest_bytes_; }  // as it came
  std::uint32_t n_layers() const { return manifest_.n_layers(); }
  std::uint32_t n_experts() const { return manifest_.n_experts; }
  std::uint32_t d_model() const { return manifest_.d_model; }
  int shift() const { return manifest_.shift; }
  // What all live epochs of a session may have together: the whole model as often as no plan has it in flight.
  std::uint64_t max_live_items() const { return 8 * std::uint64_t{n_layers()} * n_experts(); }
  const Layer& layer(std::uint32_t layer) const { return layers_[layer]; }
  const manifest::LayerShape& shape(std::uint32_t layer) const { return manifest_.layers[layer]; }
  const arena::SlabId& slab_id(const ShareItem& item) const { return manifest_.slab_id(item.layer, item.expert); }

  // Memory that holds any choice of this model's slabs of `file_bytes` in all: the store's rounding included.
  // Saturates at 2^64 - 1.
  std::uint64_t stored_bytes(std::uint64_t file_bytes) const;
  // Of a slab, at the most.
  std::uint64_t largest_stored_bytes() const;
  // Whether every layer's experts may lie on the machine's card.
  bool fits_card() const;

 private:
  Model() = default;
  manifest::Manifest manifest_;
  std::uint64_t manifest_bytes_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace terrace::node
