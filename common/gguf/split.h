// Models cut into several files: <prefix>-00001-of-00003.gguf and so on. Every one is a whole GGUF file; the first
// carries the metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/gguf/metadata.h"

namespace terrace::gguf {

// A shard's file name taken apart.
struct SplitName {
  std::string prefix;        // all before "-00001-of-00003.gguf", without the folder
  std::uint32_t number = 0;  // 1-based
  std::uint32_t count = 0;

  std::string file_name() const;
};
// Empty where the name is none of a shard.
std::optional<SplitName> parse_split_name(const std::filesystem::path& path);

// A shard's split.* keys.
struct SplitKeys {
  std::uint32_t no = 0;  // 0-based
  std::uint32_t count = 0;
  std::optional<std::uint64_t> n_tensors;  // over all shards
};
// Empty for a file that is not split: no split.count, or 0. kCorrupt: a key is missing or wrong.
Result<std::optional<SplitKeys>> read_split_keys(const Metadata& metadata);

// The file that was opened is the first shard and is named like one. The error says which file to open instead.
Status check_first_shard(const std::filesystem::path& path, const Metadata& metadata, const SplitKeys& keys);
// A later shard says of itself what its place says.
Status check_later_shard(const Metadata& metadata, std::uint32_t no, const SplitKeys& first);

}  // namespace terrace::gguf
