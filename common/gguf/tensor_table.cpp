#include "common/gguf/tensor_table.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/gguf/corrupt.h"
#include "common/gguf/text.h"

namespace terrace::gguf {
namespace {

struct Foreign {
  std::uint32_t id;
  const char* name;
};
constexpr Foreign kRemoved[] = {{4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
                                {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};

// ik_llama.cpp numbers its own types 97-99, 133-158 and 202-399; their rows may carry headers of their own, so not
// even their sizes follow from a block.
bool is_private_to_ik(std::uint32_t id) {
  return (id >= 97 && id <= 99) || (id >= 133 && id <= 158) || (id >= 202 && id <= 399);
}

Error unknown_type(std::uint32_t id) {
  for (const Foreign& removed : kRemoved) {
    if (removed.id != id) continue;
    const char* also = id == 36 ? " (ik_llama.cpp writes its I2_S under this number)" : "";
    return Error(ErrorCode::kUnsupported, fmt::format("type {} ({}) was removed from the format{}; quantise the model "
                                                      "again",
                                                      id, removed.name, also));
  }
  if (is_private_to_ik(id))
    return Error(ErrorCode::kUnsupported,
                 fmt::format("type {} is private to ik_llama.cpp; take a file in standard types", id));
  return Error(ErrorCode::kUnsupported, fmt::format("type {} is unknown", id));
}

Status read_shape(ByteReader& in, TensorInfo& tensor) {
  TERRACE_ASSIGN_OR_RETURN(tensor.n_dims, in.read<std::uint32_t>("the number of dimensions"));
  if (tensor.n_dims < 1 || tensor.n_dims > kMaxRank)
    return corrupt(fmt::format("{} dimensions; 1 to {} are allowed", tensor.n_dims, kMaxRank));
  for (std::uint32_t i = 0; i < tensor.n_dims; ++i) {
    TERRACE_ASSIGN_OR_RETURN(tensor.shape[i], in.read<std::uint64_t>("a dimension"));
  }
  return {};
}

Status read_entry(ByteReader& in, TensorInfo& tensor) {
  TERRACE_RETURN_IF_ERROR(read_shape(in, tensor));
  TERRACE_ASSIGN_OR_RETURN(const auto type, in.read<std::uint32_t>("the type"));
  TERRACE_ASSIGN_OR_RETURN(tensor.file_offset, in.read<std::uint64_t>("the data offset"));
  const TensorTypeInfo* known = find_tensor_type(type);
  if (known == nullptr) return unknown_type(type);
  tensor.type = known->type;
  return check_size(tensor);
}

Status check_names_unique(const std::vector<TensorInfo>& tensors) {
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return tensors[a].name < tensors[b].name; });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return tensors[a].name == tensors[b].name; });
  if (twice == order.end()) return {};
  return corrupt(fmt::format("{} stands twice in the tensor table, first at offset {}", tensors[*(twice + 1)].place(),
                             tensors[*twice].table_offset));
}

Status check_overlaps(const std::vector<TensorInfo>& tensors) {
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return tensors[a].file_offset < tensors[b].file_offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = tensors[order[i - 1]];
    const TensorInfo& after = tensors[order[i]];
    if (before.file_offset + before.bytes > after.file_offset)
      return corrupt(fmt::format("{}: the data, bytes {} to {}, overlaps that of {}, from byte {}", before.place(),
                                 before.file_offset, before.file_offset + before.bytes, after.place(),
                                 after.file_offset));
  }
  return {};
}

}  // namespace

std::string TensorInfo::shape_text() const {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.begin() + n_dims, ", "));
}

std::string TensorInfo::place() const { return fmt::format("tensor {} (offset {})", name, table_offset); }

Status check_size(TensorInfo& tensor) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t values = 1;
  for (const std::uint64_t n : tensor.shape) {
    if (n == 0) return corrupt(fmt::format("shape {}: a dimension is 0", tensor.shape_text()));
    if (n > kMax / values) return corrupt(fmt::format("shape {}: the size overflows", tensor.shape_text()));
    values *= n;
  }
  const TensorTypeInfo& type = info(tensor.type);
  if (tensor.shape[0] % type.block_values != 0)
    return corrupt(
        fmt::format("rows of {} values are no whole blocks of {} ({})", tensor.shape[0], type.block_values, type.name));
  const std::uint64_t blocks = values / type.block_values;
  if (blocks > kMax / type.block_bytes)
    return corrupt(fmt::format("shape {} of {}: the size in bytes overflows", tensor.shape_text(), type.name));
  tensor.bytes = blocks * type.block_bytes;
  return {};
}

Result<std::vector<TensorInfo>> read_tensor_table(ByteReader& in, std::uint64_t n_tensors) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(n_tensors);
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    const std::uint64_t at = in.offset();
    auto name = read_name(in, "tensor name", kMaxTensorNameBytes);
    if (!name.ok()) return name.error().in(fmt::format("tensor {} of {} (offset {})", i + 1, n_tensors, at));
    TensorInfo& tensor = tensors.emplace_back();
    tensor.name = std::string(*name);
    tensor.table_offset = at;
    if (auto status = read_entry(in, tensor); !status.ok()) return status.error().in(tensor.place());
  }
  TERRACE_RETURN_IF_ERROR(check_names_unique(tensors));
  return tensors;
}

Status place_tensors(ShardTable& shard, std::uint64_t file_bytes) {
  if (shard.tensors.empty()) return {};
  if (shard.data_start > file_bytes)
    return corrupt(
        fmt::format("the tensor data should begin at offset {} (general.alignment {}) and the file has {} bytes:"
                    " truncated or damaged",
                    shard.data_start, shard.alignment, file_bytes));
  const std::uint64_t data_bytes = file_bytes - shard.data_start;
  for (TensorInfo& tensor : shard.tensors) {
    if (tensor.file_offset % shard.alignment != 0)
      return corrupt(fmt::format("{}: the data offset {} is no multiple of the alignment {}", tensor.place(),
                                 tensor.file_offset, shard.alignment));
    if (tensor.file_offset > data_bytes || tensor.bytes > data_bytes - tensor.file_offset)
      return corrupt(
          fmt::format("{}: {} bytes at offset {} of the data, which begins at byte {}, end past the "
                      "end of the file at byte {}: truncated or damaged",
                      tensor.place(), tensor.bytes, tensor.file_offset, shard.data_start, file_bytes));
    tensor.file_offset += shard.data_start;
  }
  return check_overlaps(shard.tensors);
}

}  // namespace terrace::gguf
