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
  const auto number = [](TensorType type) { return static_cast<std::uint32_t>(type); };
  layer.sizes = {shape.gate_bytes(),
                 shape.up_bytes(),
                 shape.down_bytes(),
                 {number(shape.types.gate), number(shape.types.up), number(shape.types.down), shape.d_model, shape.ff}};
  TERRACE_ASSIGN_OR_RETURN(
      layer.kernels,
      kernels::select_expert_kernels({shape.types.gate, shape.types.up, shape.types.down, shape.d_model, shape.ff},
                                     machine.cpu, machine.isa, kernels::Activations::kQuantised));
  layer.on_card = machine.card != nullptr && machine.card->check(layer.kernels.shape).ok();
  return layer;
}

// The hash behind a slab id covers the slab's shape, so one id in layers of two shapes is a lie about one of them.
Status check_one_shape_an_id(const manifest::Manifest& manifest, const std::vector<Model::Layer>& layers) {
  std::vector<ShareItem> items;
  for (std::uint32_t layer = 0; layer < manifest.n_layers(); ++layer)
    for (std::uint32_t expert = 0; layers[layer].has_experts && expert < manifest.n_experts; ++expert)
      items.push_back({layer, expert});
  const auto id = [&](const ShareItem& item) -> const auto& { return manifest.slab_id(item.layer, item.expert); };
  std::sort(items.begin(), items.end(), [&](const ShareItem& a, const ShareItem& b) { return id(a) < id(b); });
  for (std::size_t i = 1; i < items.size(); ++i) {
    const ShareItem &a = items[i - 1], &b = items[i];
    if (id(a) != id(b) || layers[a.layer].sizes == layers[b.layer].sizes) continue;
    return Error(ErrorCode::kCorrupt,
                 fmt::format("manifest: layer {}, expert {} and layer {}, expert {} have one slab id, {}, but slabs of "
                             "{} and {} bytes or of other types",
                             a.layer, a.expert, b.layer, b.expert, security::to_hex(id(a)),
                             layers[a.layer].sizes.file_bytes(), layers[b.layer].sizes.file_bytes()));
  }
  return {};
}

}  // namespace

Result<Model> Model::parse(std::span<const std::byte> bytes, const Machine& machine) {
  TERRACE_ASSIGN_OR_RETURN(manifest::Manifest manifest, manifest::parse(bytes));
  TERRACE_ASSIGN_OR_RETURN(Model model, outline(std::move(manifest), machine));
  model.manifest_bytes_ = bytes.size();
  TERRACE_RETURN_IF_ERROR(check_one_shape_an_id(model.manifest_, model.layers_));
  return model;
}

Result<Model> Model::outline(manifest::Manifest taken, const Machine& machine) {
  Model model;
  model.manifest_ = std::move(taken);
  const manifest::Manifest& manifest = model.manifest_;
  const std::uint64_t n_slabs = std::uint64_t{manifest.n_layers()} * manifest.n_experts;
  if (manifest.n_layers() > kMaxLayers || n_slabs > kMaxSlabs)
    return Error(ErrorCode::kRefused, fmt::format("the manifest has {} layers and {} slabs; a node takes {} and {}",
                                                  manifest.n_layers(), n_slabs, kMaxLayers, kMaxSlabs));
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

std::uint64_t Model::largest_stored_bytes() const {
  std::uint64_t most = 0;
  for (const Layer& layer : layers_)
    if (layer.has_experts) most = std::max(most, layer.sizes.stored_bytes());
  return most;
}

bool Model::fits_card() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.on_card || !layer.has_experts; });
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
