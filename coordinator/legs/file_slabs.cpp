#include "coordinator/legs/file_slabs.h"

#include <fmt/core.h>

#include "common/manifest/slab.h"

namespace terrace::legs {

FileSlabs::FileSlabs(const gguf::File& file, const manifest::ModelExperts& experts) {
  const auto part = [&](const manifest::PartLocation& location) -> Part {
    const gguf::TensorInfo* tensor = file.find_tensor(location.tensor);
    TERRACE_CHECK(tensor != nullptr, "an expert stack that is not in its file");
    return {file.data(*tensor).data() + (location.file_offset - tensor->file_offset), location.stride};
  };
  layers_.reserve(experts.layers.size());
  for (const manifest::LayerExperts& layer : experts.layers)
    layers_.push_back({part(layer.gate), part(layer.up), part(layer.down)});
}

kernels::SlabView FileSlabs::view(std::uint32_t layer, std::uint16_t expert) const {
  const Layer& l = layers_[layer];
  const auto at = [expert](const Part& part) { return part.first + expert * part.stride; };
  return {at(l.gate), at(l.up), at(l.down)};
}

SlabPartReader file_part_reader(const gguf::File& file, const manifest::ModelExperts& experts) {
  return [&](std::uint32_t layer, std::uint16_t expert, SlabPart part, std::uint64_t at, std::span<std::byte> to) {
    const manifest::LayerExperts& parts = experts.layers[layer];
    const manifest::PartLocation& location =
        part == SlabPart::kGate ? parts.gate : (part == SlabPart::kUp ? parts.up : parts.down);
    return manifest::read_slab_part(file, location, expert, at, to);
  };
}

kernels::ExpertShape expert_shape(const manifest::LayerShape& layer) {
  kernels::ExpertShape shape;
  shape.gate = layer.types.gate;
  shape.up = layer.types.up;
  shape.down = layer.types.down;
  shape.d_model = layer.d_model;
  shape.ff = layer.ff;
  return shape;
}

Result<std::vector<kernels::ExpertKernels>> select_layer_kernels(const manifest::ModelExperts& experts,
                                                                 const kernels::CpuFeatures& cpu,
                                                                 std::optional<kernels::Isa> forced,
                                                                 kernels::Activations activations) {
  std::vector<kernels::ExpertKernels> kernels;
  kernels.reserve(experts.layers.size());
  for (std::size_t layer = 0; layer < experts.layers.size(); ++layer) {
    auto selected = kernels::select_expert_kernels(expert_shape(experts.layers[layer].shape), cpu, forced, activations);
    if (!selected.ok()) return selected.error().in(fmt::format("experts of block {}", layer));
    kernels.push_back(std::move(*selected));
  }
  return kernels;
}

}  // namespace terrace::legs
