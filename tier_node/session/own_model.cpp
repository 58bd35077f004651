#include "tier_node/session/own_model.h"

#include <utility>

#include "common/manifest/slab.h"

namespace terrace::node {

OwnModel::OwnModel(gguf::File file, manifest::ModelExperts experts, manifest::LoadedManifest loaded)
    : file_(std::move(file)), experts_(std::move(experts)), loaded_(std::move(loaded)) {}

Result<OwnModel> OwnModel::open(const std::filesystem::path& path, const std::filesystem::path& cache_dir,
                                Parallel& parallel) {
  TERRACE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(path));
  TERRACE_ASSIGN_OR_RETURN(manifest::ModelExperts experts, manifest::find_experts(file));
  const auto no_progress = [](std::uint64_t, std::uint64_t) {};
  TERRACE_ASSIGN_OR_RETURN(manifest::LoadedManifest loaded,
                           manifest::load(file, experts, cache_dir, parallel, no_progress));
  return OwnModel(std::move(file), std::move(experts), std::move(loaded));
}

Status OwnModel::read_slab(std::uint32_t layer, std::uint32_t expert, std::span<std::byte> out) const {
  return manifest::read_slab(file_, experts_, layer, expert, out);
}

}  // namespace terrace::node
