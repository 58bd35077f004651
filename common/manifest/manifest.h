// The manifest of a model: what its legs must know of its experts, and the id of every slab. Its own hash names the
// model. Sent to nodes when a session opens, and cached.
//
// Threads  Plain values and pure functions; compute() spreads over its Parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/manifest/slab.h"

namespace terrace::manifest {

struct Manifest {
  std::string architecture;
  std::uint32_t d_model = 0;
  std::uint32_t n_experts = 0;  // of every layer that has any
  std::uint32_t top_k = 0;
  int shift = kDefaultShift;
  std::vector<LayerShape> layers;
  std::vector<Sha256> slab_ids;  // [layers, n_experts]; zero for layers without experts
  Sha256 hash{};                 // SHA-256 of the bytes of serialize() before it

  std::uint32_t n_layers() const { return static_cast<std::uint32_t>(layers.size()); }
  const Sha256& slab_id(std::uint32_t layer, std::uint32_t expert) const {
    return slab_ids[std::size_t{layer} * n_experts + expert];
  }
  std::uint64_t slab_bytes(std::uint32_t layer) const { return layers[layer].slab_bytes(); }
  bool operator==(const Manifest&) const = default;
};

// Bytes hashed so far and in all. Called by any worker, one call at a time.
using Progress = FunctionRef<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// Reads and hashes every slab of `file`, from which `experts` is. The result depends on the bytes only. Errors as
// read_slab(); the first by layer and expert is returned.
Result<Manifest> compute(const gguf::File& file, const ModelExperts& experts, Parallel& parallel, Progress progress);

// Names a model file by what can be read at once: SHA-256 over each shard's size and header (u64 sizes, little-endian,
// of the file and the header, then the header's bytes). Files of equal headers need equal memory; their weights may
// differ.
Sha256 header_hash(const gguf::File& file);

// The manifest of these experts without ids and hash: what a plan counts with before anything was read.
Manifest outline(const ModelExperts& experts);

// True if the manifest has the numbers and shapes of these experts (its ids are not looked at).
bool describes(const Manifest& manifest, const ModelExperts& experts);

// The manifest's bytes (docs/formats.md), ending in its hash.
std::string serialize(const Manifest& manifest);
// Bytes from a peer or a cache file. kUnsupported: another version. kCorrupt: everything else that is wrong, checked
// before it is allocated for; the hash last.
Result<Manifest> parse(std::span<const std::byte> bytes);

}  // namespace terrace::manifest
