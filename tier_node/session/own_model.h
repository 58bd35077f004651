// The node's own copy of a model (--model): where slabs come from without crossing the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/cache.h"
#include "common/manifest/experts.h"

namespace terrace::node {

// Immutable; any thread.
class OwnModel {
 public:
  // Opens the file and hashes its slabs, or takes the hashes from the cache. Errors name the file.
  static Result<OwnModel> open(const std::filesystem::path& path, const std::filesystem::path& cache_dir,
                               Parallel& parallel);

  const security::Sha256& hash() const { return loaded_.manifest.hash; }
  const std::string& cache_note() const { return loaded_.cache_note; }
  std::string path() const { return file_.path().string(); }
  std::uint64_t total_bytes() const { return experts_.total_bytes(); }

  // out holds exactly the slab's bytes, which are not verified here. kIo, kCorrupt name file, tensor and offset.
  Status read_slab(std::uint32_t layer, std::uint32_t expert, std::span<std::byte> out) const;

 private:
  OwnModel(gguf::File file, manifest::ModelExperts experts, manifest::LoadedManifest loaded);

  gguf::File file_;
  manifest::ModelExperts experts_;
  manifest::LoadedManifest loaded_;
};

}  // namespace terrace::node
