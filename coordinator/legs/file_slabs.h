// Where the experts of an open model file lie in this process: the mapping itself, nothing is copied or expanded.
#pragma once

#include <vector>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/host_leg.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

// Threads  Immutable once made. `file` outlives it.
class FileSlabs {
 public:
  FileSlabs(const gguf::File& file, const manifest::ModelExperts& experts);
  kernels::SlabView view(std::uint32_t layer, std::uint16_t expert) const;
  SlabLookup lookup() const {
    return [this](std::uint32_t layer, std::uint16_t expert) { return view(layer, expert); };
  }

 private:
  struct Part {
    const std::byte* first = nullptr;  // of expert 0
    std::uint64_t stride = 0;
  };
  struct Layer {
    Part gate, up, down;
  };
  std::vector<Layer> layers_;
};

// Reads parts of experts by pread: no page of the file is mapped for it. Both outlive the reader.
SlabPartReader file_part_reader(const gguf::File& file, const manifest::ModelExperts& experts);

kernels::ExpertShape expert_shape(const manifest::LayerShape& layer);

// One entry a layer. kUnsupported names the layer and its types.
Result<std::vector<kernels::ExpertKernels>> select_layer_kernels(const manifest::ModelExperts& experts,
                                                                 const kernels::CpuFeatures& cpu,
                                                                 std::optional<kernels::Isa> forced,
                                                                 kernels::Activations activations);

}  // namespace terrace::legs
