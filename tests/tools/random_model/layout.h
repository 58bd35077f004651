// The tensors of a random model and the type of each.
// Source: which tensor gets which type in the stock mixes is the rule of ggml's quantiser (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/tensor_type.h"
#include "tests/tools/random_model/random_model.h"

namespace terrace::tools {

enum class Fill : std::uint8_t { kWeights, kNorm };

struct TensorPlan {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::uint64_t> shape;  // the row's length first
  Fill fill = Fill::kWeights;
  float scale = 1;  // of weights
};

// In the order of the file.
std::vector<TensorPlan> plan_tensors(const RandomModel& model);

// general.file_type of the mix.
std::uint32_t file_type(Mix mix);

}  // namespace terrace::tools
