#include "coordinator/arch/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "coordinator/arch/qwen3moe/trunk.h"

namespace terrace::arch {
namespace {

constexpr Architecture kArchitectures[] = {
    {"qwen3moe", qwen3moe::describe, qwen3moe::make_trunk, qwen3moe::dense_groups, qwen3moe::card_model},
};

Result<const Architecture*> architecture_of(const gguf::File& file) {
  TERRACE_ASSIGN_OR_RETURN(const std::string_view name, file.architecture());
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found != std::end(kArchitectures)) return found;
  std::string known;
  for (const Architecture& a : kArchitectures) known.append(known.empty() ? "" : ", ").append(a.name);
  return Error(ErrorCode::kUnsupported,
               fmt::format("{} is {}; this build runs {}", file.key_place("general.architecture"),
                           file.find("general.architecture")->text(), known));
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<ModelInfo> describe(const gguf::File& file, const TrunkOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(file));
  return architecture->describe(file, options);
}

Result<std::unique_ptr<Trunk>> make_trunk(const gguf::File& file, const TrunkOptions& options,
                                          legs::RoutedExperts& experts, Parallel& parallel) {
  TERRACE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(file));
  return architecture->make_trunk(file, options, experts, parallel);
}

Result<DenseGroups> dense_groups(const gguf::File& file, const TrunkOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(file));
  return architecture->dense_groups(file, options);
}

Result<kernels::CardTrunkModel> card_model(const gguf::File& file, const TrunkOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(file));
  return architecture->card_model(file, options);
}

}  // namespace terrace::arch
