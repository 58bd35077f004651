// Parsing of one GGUF file's bytes: header, metadata, tensor table, extents of the data. No file system, no model
// knowledge; pure, so it is what fuzzing drives.
//
// Source: the GGUF specification of ggml (docs/formats.md). Stricter than it: names are printable UTF-8, arrays hold
// no arrays. More lenient than ggml's reader: tensor data may lie in any order and with gaps, never overlapping.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "common/gguf/metadata.h"

namespace terrace::gguf {

inline constexpr std::uint32_t kMaxRank = 4;
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::uint32_t kMinAlignment = 8;  // the format: a multiple of 8
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxTensorNameBytes = 63;
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 30;  // of an array, and bytes of a string

struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kF32;
  std::array<std::uint64_t, kMaxRank> shape = {1, 1, 1, 1};  // ne: shape[0] is a row's length; unused ones are 1
  std::uint32_t n_dims = 0;                                  // 1..4
  std::uint64_t bytes = 0;
  std::uint32_t shard = 0;
  std::uint64_t file_offset = 0;   // of the data; absolute, in its shard
  std::uint64_t table_offset = 0;  // of the entry in the tensor table; absolute, in its shard

  std::uint64_t n_values() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  // "[2048, 768, 128]"
  std::string shape_text() const;
  // How messages name it: "tensor T (offset N)", N being table_offset, where name, shape and type stand.
  std::string place() const;
};

// Sets tensor.bytes from type and shape. kCorrupt: no row of whole blocks, a dimension of 0, or a product beyond 63
// bits.
Status check_size(TensorInfo& tensor);

struct ShardTable {
  std::uint32_t version = 0;
  std::uint32_t alignment = kDefaultAlignment;
  std::uint64_t data_start = 0;     // beyond the file's end only where there are no tensors
  Metadata metadata;                // borrows the bytes parsed
  std::vector<TensorInfo> tensors;  // in table order, shard 0; every extent lies inside the bytes
};

// Errors name the key or tensor and the byte offset; the caller adds the file's name.
//   kCorrupt      the bytes break the format
//   kUnsupported  another version or byte order, a tensor type that is unknown, removed or private to another program
Result<ShardTable> parse_shard(std::span<const std::byte> bytes);

}  // namespace terrace::gguf
