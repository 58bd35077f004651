#include "common/manifest/manifest.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "common/gguf/bytes.h"

namespace terrace::manifest {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;  // one pread: large enough for a disk, small enough for the cache

// Shared by the workers of one compute(), inside whose call it lives (so it may hold the progress callable).
class Hashing {
 public:
  Hashing(const gguf::File& file, const ModelExperts& experts, std::size_t n_workers, Progress progress)
      : file_(file), experts_(experts), progress_(progress), total_bytes_(experts.total_bytes()), buffers_(n_workers) {
    ids_.resize(experts.layers.size() * experts.n_experts);
  }

  std::size_t n_items() const { return ids_.size(); }

  void run_item(std::size_t item, std::size_t worker) {
    const auto layer = static_cast<std::uint32_t>(item / experts_.n_experts);
    const auto expert = static_cast<std::uint32_t>(item % experts_.n_experts);
    if (expert >= experts_.layers[layer].shape.n_experts) return;
    // The first error by number is the one returned, so items before a failed one still run.
    if (item > failed_item_.load(std::memory_order_relaxed)) return;
    auto& buffer = buffers_[worker];
    buffer.resize(kReadBytes);
    auto id = slab_id_in(file_, experts_, layer, expert, buffer);
    const std::lock_guard lock(mutex_);
    if (!id.ok()) return fail(item, id.error());
    ids_[item] = *id;
    done_bytes_ += experts_.slab_bytes(layer);
    progress_(done_bytes_, total_bytes_);
  }

  Result<std::vector<Sha256>> take() && {
    if (error_) return *error_;
    return std::move(ids_);
  }

 private:
  void fail(std::size_t item, const Error& error) {
    if (item > failed_item_) return;
    failed_item_ = item;
    error_ = error;
  }

  const gguf::File& file_;
  const ModelExperts& experts_;
  Progress progress_;
  const std::uint64_t total_bytes_;
  std::vector<std::vector<std::byte>> buffers_;  // one for each worker
  std::vector<Sha256> ids_;                      // each item writes its own
  std::atomic<std::size_t> failed_item_ = SIZE_MAX;
  std::mutex mutex_;  // guards what follows, and progress_
  std::optional<Error> error_;
  std::uint64_t done_bytes_ = 0;
};

}  // namespace

Sha256 header_hash(const gguf::File& file) {
  security::Sha256Hasher hasher;
  for (std::uint32_t shard = 0; shard < file.n_shards(); ++shard) {
    const auto header = file.header(shard);
    std::string sizes;
    gguf::append(sizes, file.shard_bytes(shard));
    gguf::append(sizes, static_cast<std::uint64_t>(header.size()));
    hasher.update(gguf::as_bytes(sizes));
    hasher.update(header);
  }
  return hasher.finish();
}

Manifest outline(const ModelExperts& experts) {
  Manifest manifest;
  manifest.architecture = experts.architecture;
  manifest.d_model = experts.d_model;
  manifest.n_experts = experts.n_experts;
  manifest.top_k = experts.top_k;
  manifest.shift = experts.shift;
  for (const LayerExperts& layer : experts.layers) manifest.layers.push_back(layer.shape);
  return manifest;
}

Result<Manifest> compute(const gguf::File& file, const ModelExperts& experts, Parallel& parallel, Progress progress) {
  Hashing hashing(file, experts, parallel.n_workers(), progress);
  parallel.run(hashing.n_items(), [&](std::size_t item, std::size_t worker) { hashing.run_item(item, worker); });
  Manifest manifest = outline(experts);
  TERRACE_ASSIGN_OR_RETURN(manifest.slab_ids, std::move(hashing).take());
  const std::string bytes = serialize(manifest);
  std::copy_n(gguf::as_bytes(bytes).end() - security::kSha256Bytes, security::kSha256Bytes, manifest.hash.begin());
  return manifest;
}

bool describes(const Manifest& manifest, const ModelExperts& experts) {
  Manifest expected = outline(experts);
  expected.slab_ids = manifest.slab_ids;
  expected.hash = manifest.hash;
  return expected == manifest;
}

}  // namespace terrace::manifest
