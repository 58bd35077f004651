// The model architectures this build runs: one line each in architectures.cpp.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/dense_groups.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/routed_experts.h"
#include "kernels/card/card_trunk.h"

namespace terrace::arch {

struct Architecture {
  std::string_view name;  // general.architecture
  Result<ModelInfo> (*describe)(const gguf::File& file, const TrunkOptions& options) = nullptr;
  Result<std::unique_ptr<Trunk>> (*make_trunk)(const gguf::File& file, const TrunkOptions& options,
                                               legs::RoutedExperts& experts, Parallel& parallel) = nullptr;
  Result<DenseGroups> (*dense_groups)(const gguf::File& file, const TrunkOptions& options) = nullptr;
  Result<kernels::CardTrunkModel> (*card_model)(const gguf::File& file, const TrunkOptions& options) = nullptr;
};

std::span<const Architecture> architectures();

// What the file says the model is, all keys and tensors checked; nothing of the weights is read. Errors name the file
// and the key or tensor: kNotFound, kCorrupt, kUnsupported (an architecture that is not in the table: the text lists
// those that are), kInvalidArgument (an option that the model cannot meet).
Result<ModelInfo> describe(const gguf::File& file, const TrunkOptions& options);

// The file's trunk over `experts`. `file`, `experts` and `parallel` outlive it. Errors as describe().
Result<std::unique_ptr<Trunk>> make_trunk(const gguf::File& file, const TrunkOptions& options,
                                          legs::RoutedExperts& experts, Parallel& parallel);

// The matrices of that trunk, as it multiplies with them. Errors as describe().
Result<DenseGroups> dense_groups(const gguf::File& file, const TrunkOptions& options);

// What a card is told of that trunk; borrows the file's mapping. kUnsupported: a card has no kernels for an option (the
// text names it). Other errors as describe().
Result<kernels::CardTrunkModel> card_model(const gguf::File& file, const TrunkOptions& options);

}  // namespace terrace::arch
