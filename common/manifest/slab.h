// A slab: the bytes of one expert of one layer, gate then up then down, each part's rows as the file holds them.
// Files that fuse gate and up and files that do not give the same slabs.
//
// Threads  Pure functions; reads are by pread, so any number of threads may share a File.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/security/sha256.h"

namespace terrace::manifest {

using security::Sha256;

// Reads a slab; out holds exactly model.slab_bytes(layer) bytes. layer and expert are in range, `model` is from `file`.
// kIo: the system's reason. kCorrupt: the file is shorter than when it was opened. Both name file, tensor and offset.
Status read_slab(const gguf::File& file, const ModelExperts& model, std::uint32_t layer, std::uint32_t expert,
                 std::span<std::byte> out);

// Reads the bytes [begin, begin + out.size()) of an expert's `part`, one of model.layers[...]; they lie inside it.
// Errors as read_slab().
Status read_slab_part(const gguf::File& file, const PartLocation& part, std::uint32_t expert, std::uint64_t begin,
                      std::span<std::byte> out);

// What every reader of slabs says of a read that failed: "FILE: tensor T: cannot read at offset N: REASON".
Error slab_read_error(const gguf::File& file, const PartLocation& part, std::uint64_t offset, const std::string& reason,
                      ErrorCode code);

// SHA-256("terrace slab 1" ‖ u32 types of gate, up, down ‖ u32 d_model, ff ‖ the slab's bytes), little-endian
// (docs/formats.md). Equal experts of two layers or two models have one id.
class SlabHasher {
 public:
  explicit SlabHasher(const LayerShape& shape);
  void update(std::span<const std::byte> bytes) { hasher_.update(bytes); }
  Sha256 finish() { return hasher_.finish(); }

 private:
  security::Sha256Hasher hasher_;
};

// The id of a slab in memory, read or received: what a node compares with the manifest.
Sha256 slab_id_of(const LayerShape& shape, std::span<const std::byte> slab);

// The id of a slab in the file, read through `buffer` (any size from 1). Errors as read_slab().
Result<Sha256> slab_id_in(const gguf::File& file, const ModelExperts& model, std::uint32_t layer, std::uint32_t expert,
                          std::span<std::byte> buffer);

}  // namespace terrace::manifest
