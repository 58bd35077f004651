// The tensor table of a shard and the extents of its data. Used by shard.cpp only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/bytes.h"
#include "common/gguf/shard.h"

namespace terrace::gguf {

// A length and as many bytes; `what` names it in messages.
Result<std::string_view> read_string(ByteReader& in, std::string_view what, std::uint64_t max_bytes);
// A string that is not empty and printable.
Result<std::string_view> read_name(ByteReader& in, std::string_view what, std::uint64_t max_bytes);

// Reads n_tensors entries; file_offset is still relative to the data section. Checks rank, shape, type and size of
// each, and that no name stands twice.
Result<std::vector<TensorInfo>> read_tensor_table(ByteReader& in, std::uint64_t n_tensors);

// Makes the offsets of shard.tensors absolute. Checks alignment, ends against file_bytes, and overlaps.
Status place_tensors(ShardTable& shard, std::uint64_t file_bytes);

}  // namespace terrace::gguf
