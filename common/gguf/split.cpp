#include "common/gguf/split.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/gguf/corrupt.h"

namespace terrace::gguf {
namespace {

constexpr std::size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kExtension = ".gguf";

std::optional<std::uint32_t> parse_number(std::string_view digits) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string SplitName::file_name() const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count); }

std::optional<SplitName> parse_split_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();  // "-00001-of-00003.gguf"
  if (name.size() <= kTail) return std::nullopt;
  const std::string_view tail = std::string_view(name).substr(name.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !tail.ends_with(kExtension)) return std::nullopt;
  const auto number = parse_number(tail.substr(1, kDigits));
  const auto count = parse_number(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!number || !count) return std::nullopt;
  return SplitName{name.substr(0, name.size() - kTail), *number, *count};
}

Result<std::optional<SplitKeys>> read_split_keys(const Metadata& metadata) {
  TERRACE_ASSIGN_OR_RETURN(const auto count, metadata.get_u32_or("split.count", 0));
  if (count == 0) return std::optional<SplitKeys>();
  SplitKeys keys;
  keys.count = count;
  TERRACE_ASSIGN_OR_RETURN(keys.no, metadata.get_u32("split.no"));
  if (keys.no >= count)
    return corrupt(fmt::format("{} is {} and split.count {}: the first shard has number 0", metadata.place("split.no"),
                               keys.no, count));
  if (metadata.find("split.tensors.count") != nullptr) {
    TERRACE_ASSIGN_OR_RETURN(keys.n_tensors, metadata.get_u64("split.tensors.count"));
  }
  return std::optional<SplitKeys>(keys);
}

Status check_first_shard(const std::filesystem::path& path, const Metadata& metadata, const SplitKeys& keys) {
  auto name = parse_split_name(path);
  if (keys.no != 0) {
    if (name) name->number = 1;
    const std::string first = name ? name->file_name() : std::string("the first shard");
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is {}: this is shard {} of {}; open {} instead", metadata.place("split.no"), keys.no,
                             keys.no + 1, keys.count, first));
  }
  if (keys.count == 1) return {};
  if (!name || name->number != 1 || name->count != keys.count)
    return corrupt(
        fmt::format("{} is {}: this is shard 1 of {}, so its name must end in -00001-of-{:05}.gguf for the others to "
                    "be found beside it",
                    metadata.place("split.count"), keys.count, keys.count, keys.count));
  return {};
}

Status check_later_shard(const Metadata& metadata, std::uint32_t no, const SplitKeys& first) {
  TERRACE_ASSIGN_OR_RETURN(const auto keys, read_split_keys(metadata));
  if (!keys) return corrupt("no split.count: this is a whole file under a shard's name");
  if (keys->count != first.count)
    return corrupt(fmt::format("{} is {}, {} in the first shard: from another split", metadata.place("split.count"),
                               keys->count, first.count));
  if (keys->no != no)
    return corrupt(fmt::format("{} is {}, its name says {}: a shard doubled or renamed", metadata.place("split.no"),
                               keys->no, no));
  if (keys->n_tensors && first.n_tensors && *keys->n_tensors != *first.n_tensors)
    return corrupt(fmt::format("{} is {}, {} in the first shard: from another split",
                               metadata.place("split.tensors.count"), *keys->n_tensors, *first.n_tensors));
  return {};
}

}  // namespace terrace::gguf
