#include "common/gguf/file.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "common/gguf/split.h"
#include "common/gguf/text.h"

namespace terrace::gguf {

Result<File::Shard> File::open_shard(const std::filesystem::path& path) {
  TERRACE_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  auto table = parse_shard(file.bytes());
  if (!table.ok()) return table.error().in(path.string());
  return Shard{std::move(file), std::move(table).value()};
}

Result<File> File::open(const std::filesystem::path& path) {
  File file;
  TERRACE_ASSIGN_OR_RETURN(auto first, open_shard(path));
  file.shards_.push_back(std::move(first));
  TERRACE_ASSIGN_OR_RETURN(const auto split, file.in_file(read_split_keys(file.metadata())));
  if (split) TERRACE_RETURN_IF_ERROR(file.open_split_set(*split));
  TERRACE_RETURN_IF_ERROR(file.gather_tensors());
  return file;
}

Status File::open_split_set(const SplitKeys& first) {
  if (auto status = check_first_shard(path(), metadata(), first); !status.ok())
    return status.error().in(path().string());
  for (std::uint32_t no = 1; no < first.count; ++no) TERRACE_RETURN_IF_ERROR(open_later_shard(no, first));
  std::uint64_t n_tensors = 0;
  for (const Shard& shard : shards_) n_tensors += shard.table.tensors.size();
  if (!first.n_tensors || *first.n_tensors == n_tensors) return {};
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} is {}, the {} shards hold {} tensors", key_place("split.tensors.count"),
                           *first.n_tensors, first.count, n_tensors));
}

Status File::open_later_shard(std::uint32_t no, const SplitKeys& first) {
  auto name = parse_split_name(path()).value();
  name.number = no + 1;
  const auto later = path().parent_path() / name.file_name();
  auto shard = open_shard(later);
  if (!shard.ok()) {
    if (shard.error().code() != ErrorCode::kNotFound) return shard.error();
    return Error(ErrorCode::kNotFound, fmt::format("{}: shard {} of {} is missing; all shards must lie in one folder",
                                                   later.string(), no + 1, first.count));
  }
  if (auto status = check_later_shard(shard->table.metadata, no, first); !status.ok())
    return status.error().in(later.string());
  shards_.push_back(std::move(shard).value());
  return {};
}

Status File::gather_tensors() {
  for (std::uint32_t s = 0; s < n_shards(); ++s) {
    for (TensorInfo& tensor : shards_[s].table.tensors) tensor.shard = s;
    std::move(shards_[s].table.tensors.begin(), shards_[s].table.tensors.end(), std::back_inserter(tensors_));
    shards_[s].table.tensors.clear();
  }
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::stable_sort(by_name_.begin(), by_name_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  const auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return tensors_[a].name == tensors_[b].name;
  });
  if (twice == by_name_.end()) return {};
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} is in {} too: a shard doubled", tensor_place(tensors_[*(twice + 1)]),
                           path(tensors_[*twice].shard).string()));
}

std::string File::key_place(std::string_view key) const {
  return fmt::format("{}: {}", path().string(), metadata().place(key));
}

std::string File::tensor_place(const TensorInfo& tensor) const {
  return fmt::format("{}: {}", path(tensor.shard).string(), tensor.place());
}

const TensorInfo* File::find_tensor(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

Result<const TensorInfo*> File::get_tensor(std::string_view name) const {
  if (const TensorInfo* tensor = find_tensor(name)) return tensor;
  return Error(ErrorCode::kNotFound, fmt::format("{}: tensor {} is missing", path().string(), escaped(name)));
}

std::span<const std::byte> File::data(const TensorInfo& tensor) const {
  return shards_[tensor.shard].file.bytes().subspan(tensor.file_offset, tensor.bytes);
}

std::span<const std::byte> File::header(std::uint32_t shard) const {
  const std::span<const std::byte> bytes = shards_[shard].file.bytes();
  return bytes.first(std::min<std::uint64_t>(shards_[shard].table.data_start, bytes.size()));
}

std::uint64_t File::file_bytes() const {
  std::uint64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.file.bytes().size();
  return sum;
}

}  // namespace terrace::gguf
