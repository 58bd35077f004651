// The tensors of a qwen3moe model, found and checked against its parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/parts/gqa.h"
#include "coordinator/arch/parts/matrix.h"
#include "coordinator/arch/qwen3moe/parameters.h"
#include "coordinator/arch/trunk_options.h"

namespace terrace::arch::qwen3moe {

struct Layer {
  const float* attention_norm = nullptr;  // [d_model]
  GqaWeights attention;
  const float* expert_norm = nullptr;  // [d_model]
  Matrix router;                       // [n_experts, d_model]
  std::uint64_t expert_bytes = 0;      // of one expert: gate, up and down
};

// Borrows the file's mapping. The experts' own bytes belong to the legs.
struct Tensors {
  Matrix embedding;  // [vocabulary, d_model], read row by row
  std::vector<Layer> layers;
  const float* output_norm = nullptr;  // [d_model]
  Matrix head;                         // [vocabulary, d_model]; the embedding where the file has no output.weight

  std::uint32_t vocabulary() const { return static_cast<std::uint32_t>(embedding.rows); }
  // What one decode step of one row reads: dense matrices, head, an embedding row, top_k experts a layer.
  std::uint64_t bytes_per_step(std::uint32_t top_k) const;
  // Those whose products a card may compute: the routers' are too small to travel for.
  std::vector<Matrix*> dense_products();
};

// Errors as TensorBinder's.
Result<Tensors> bind_tensors(const gguf::File& file, const Parameters& parameters, const TrunkOptions& options);

}  // namespace terrace::arch::qwen3moe
