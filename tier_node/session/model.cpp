#include "tier_node/session/model.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace terrace::node {
namespace {

Result<Model::Layer> make_layer(const manifest::LayerShape& shape, const Machine& machine) {
  Model::Layer layer;
  if (shape.n_experts == 0) return layer;
  layer.has_experts = true;
  layer.sizes = {shape.gate_bytes(), shape.up_bytes(), shape.down_bytes()};
  TERRACE_ASSIGN_OR_RETURN(
      layer.kernels,
      kernels::select_expert_kernels({shape.types.gate, shape.types.up, shape.types.down, shape.d_model, shape.ff},
                                     machine.cpu, machine.isa, kernels::Activations::kQuantised));
  return layer;
}

}  // namespace

Result<Model> Model::parse(std::span<const std::byte> bytes, const Machine& machine) {
  Model model;
  TERRACE_ASSIGN_OR_RETURN(model.manifest_, manifest::parse(bytes));
  const manifest::Manifest& manifest = model.manifest_;
  if (manifest.shift < manifest::kMinShift || manifest.shift > manifest::kMaxShift)
    return Error(ErrorCode::kRefused, fmt::format("the manifest's SHIFT is {}; {} to {} are allowed", manifest.shift,
                                                  manifest::kMinShift, manifest::kMaxShift));
  bool any_experts = false;
  for (std::uint32_t l = 0; l < manifest.n_layers(); ++l) {
    const manifest::LayerShape& shape = manifest.layers[l];
    if (shape.n_experts != 0 && (shape.d_model != manifest.d_model || shape.n_experts != manifest.n_experts))
      return Error(ErrorCode::kRefused,
                   fmt::format("layer {} has {} experts of width {}, the model {} of width {}", l, shape.n_experts,
                               shape.d_model, manifest.n_experts, manifest.d_model));
    auto layer = make_layer(shape, machine);
    if (!layer.ok()) return layer.error().in(fmt::format("experts of layer {}", l));
    any_experts |= layer->has_experts;
    model.layers_.push_back(std::move(layer).value());
  }
  if (!any_experts) return Error(ErrorCode::kRefused, "the manifest has no layer with experts");
  return model;
}

// Of all slabs of F bytes in all, those with the largest share of rounding need the most.
std::uint64_t Model::stored_bytes(std::uint64_t file_bytes) const {
  unsigned __int128 most = file_bytes;
  for (const Layer& layer : layers_) {
    if (!layer.has_experts) continue;
    const std::uint64_t of_file = layer.sizes.file_bytes();
    const unsigned __int128 stored =
        (static_cast<unsigned __int128>(file_bytes) * layer.sizes.stored_bytes() + of_file - 1) / of_file;
    most = std::max(most, stored);
  }
  return most > ~std::uint64_t{0} ? ~std::uint64_t{0} : static_cast<std::uint64_t>(most);
}

}  // namespace terrace::node
