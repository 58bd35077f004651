#include "common/gguf/shard.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "common/gguf/corrupt.h"
#include "common/gguf/tensor_table.h"
#include "common/gguf/text.h"

namespace terrace::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
// The header's numbers, as messages name them.
constexpr std::string_view kVersion = "the version (offset 4)";
constexpr std::string_view kTensorCount = "the tensor count (offset 8)";
constexpr std::string_view kKeyCount = "the key count (offset 16)";
// The least an entry of the table takes: a one-byte name and one dimension.
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

struct Header {
  std::uint32_t version = 0;
  std::uint64_t n_tensors = 0;
  std::uint64_t n_keys = 0;
};

Status check_version(std::uint32_t version) {
  if (version != 0 && (version & 0xffff) == 0)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} is {:#010x}: a big-endian file; little-endian ones are read", kVersion, version));
  if (version < 2 || version > 3)
    return Error(ErrorCode::kUnsupported, fmt::format("{} is {}; 2 and 3 can be read", kVersion, version));
  return {};
}

Status check_count(std::string_view what, std::uint64_t count, std::uint64_t least_bytes, std::uint64_t left) {
  if (count <= left / least_bytes) return {};
  return corrupt(fmt::format("{} is {}, at least {} bytes each, and {} bytes are left: truncated or damaged", what,
                             count, least_bytes, left));
}

Result<Header> read_header(ByteReader& in) {
  if (in.left() < kMagic.size())
    return corrupt(fmt::format("it ends at offset {}, too short for a GGUF file", in.left()));
  const std::string_view magic = as_text(in.take(kMagic.size(), "the magic").value());
  if (magic != kMagic) return corrupt(fmt::format("no GGUF file: the magic (offset 0) is \"{}\"", escaped(magic)));
  Header header;
  TERRACE_ASSIGN_OR_RETURN(header.version, in.read<std::uint32_t>("the version"));
  TERRACE_RETURN_IF_ERROR(check_version(header.version));
  TERRACE_ASSIGN_OR_RETURN(header.n_tensors, in.read<std::uint64_t>("the tensor count"));
  TERRACE_ASSIGN_OR_RETURN(header.n_keys, in.read<std::uint64_t>("the key count"));
  // Nothing is allocated by this count, so a cut file is told by the key in which it ends.
  if (header.n_keys > kMaxElements)
    return corrupt(fmt::format("{} is {}; {} is the limit", kKeyCount, header.n_keys, kMaxElements));
  return header;
}

Result<ValueType> read_value_type(ByteReader& in, std::string_view what) {
  TERRACE_ASSIGN_OR_RETURN(const auto id, in.read<std::uint32_t>(what));
  if (id >= kValueTypes) return corrupt(fmt::format("{} is {}; 0 to {} exist", what, id, kValueTypes - 1));
  return static_cast<ValueType>(id);
}

Status check_bools(std::span<const std::byte> bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return {};
  return corrupt(fmt::format("a bool is {}; 0 and 1 exist", std::to_integer<int>(*bad)));
}

// The elements of an array of strings: only their lengths are looked at.
Result<std::span<const std::byte>> take_strings(ByteReader& in, std::uint64_t count) {
  ByteReader ahead = in;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto string = read_string(ahead, "string", kMaxElements);
    if (!string.ok()) return string.error().in(fmt::format("element {}", i));
  }
  return in.take(ahead.offset() - in.offset(), "the strings");
}

Status read_array(ByteReader& in, Value& value) {
  TERRACE_ASSIGN_OR_RETURN(value.element, read_value_type(in, "the element type"));
  if (value.element == ValueType::kArray) return corrupt("an array of arrays; nested arrays are not read");
  TERRACE_ASSIGN_OR_RETURN(value.count, in.read<std::uint64_t>("the element count"));
  const bool strings = value.element == ValueType::kString;
  const std::uint64_t least = strings ? sizeof(std::uint64_t) : scalar_bytes(value.element);
  if (value.count > kMaxElements)
    return corrupt(fmt::format("the element count is {}; {} is the limit", value.count, kMaxElements));
  TERRACE_RETURN_IF_ERROR(check_count("the element count", value.count, least, in.left()));
  TERRACE_ASSIGN_OR_RETURN(value.bytes,
                           strings ? take_strings(in, value.count) : in.take(value.count * least, "the elements"));
  return value.element == ValueType::kBool ? check_bools(value.bytes) : Status();
}

Result<Value> read_value(ByteReader& in) {
  Value value;
  value.offset = in.offset();
  TERRACE_ASSIGN_OR_RETURN(value.type, read_value_type(in, "the value type"));
  if (value.type == ValueType::kArray) {
    TERRACE_RETURN_IF_ERROR(read_array(in, value));
    return value;
  }
  if (value.type == ValueType::kString) {
    TERRACE_ASSIGN_OR_RETURN(const std::string_view text, read_string(in, "string", kMaxElements));
    value.bytes = as_bytes(text);
    return value;
  }
  TERRACE_ASSIGN_OR_RETURN(value.bytes, in.take(scalar_bytes(value.type), "the value"));
  if (value.type == ValueType::kBool) TERRACE_RETURN_IF_ERROR(check_bools(value.bytes));
  return value;
}

Result<Metadata> read_metadata(ByteReader& in, std::uint64_t n_keys) {
  Metadata metadata;
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    const std::uint64_t at = in.offset();
    auto key = read_name(in, "key", kMaxKeyBytes);
    if (!key.ok()) return key.error().in(fmt::format("key {} of {} (offset {})", i + 1, n_keys, at));
    const std::uint64_t value_at = in.offset();
    auto value = read_value(in);
    if (!value.ok()) return value.error().in(key_place(*key, value_at));
    metadata.add({*key, *value});
  }
  TERRACE_RETURN_IF_ERROR(metadata.seal());
  return metadata;
}

// u32 and nothing else: the format fixes this key's type, since everything after depends on it.
Result<std::uint32_t> read_alignment(const Metadata& metadata) {
  constexpr std::string_view kKey = "general.alignment";
  const Value* value = metadata.find(kKey);
  if (value == nullptr) return kDefaultAlignment;
  if (value->type != ValueType::kU32)
    return corrupt(fmt::format("{} has the type {}; u32 is needed", metadata.place(kKey), value->type_text()));
  const auto alignment = load<std::uint32_t>(value->bytes.data());
  if (alignment < kMinAlignment || !std::has_single_bit(alignment))
    return corrupt(fmt::format("{} is {}; a power of two of at least {} is needed", metadata.place(kKey), alignment,
                               kMinAlignment));
  return alignment;
}

}  // namespace

Result<std::string_view> read_string(ByteReader& in, std::string_view what, std::uint64_t max_bytes) {
  // A vocabulary has half a million strings: what a message would say is put together only for one.
  if (in.left() < sizeof(std::uint64_t))
    return in.take(sizeof(std::uint64_t), fmt::format("the {} length", what)).error();
  const std::uint64_t length = in.read<std::uint64_t>(what).value();
  const std::uint64_t at = in.offset();
  if (length > in.left())
    return corrupt(fmt::format("the {} length is {} at offset {} and {} bytes are left: truncated or damaged", what,
                               length, at, in.left()));
  if (length > max_bytes)
    return corrupt(fmt::format("the {} length is {} at offset {}; {} is the limit", what, length, at, max_bytes));
  return as_text(in.take(length, what).value());
}

Result<std::string_view> read_name(ByteReader& in, std::string_view what, std::uint64_t max_bytes) {
  TERRACE_ASSIGN_OR_RETURN(const std::string_view text, read_string(in, what, max_bytes));
  if (text.empty()) return corrupt(fmt::format("an empty {}", what));
  if (!is_printable(text)) return corrupt(fmt::format("the {} \"{}\" is not printable UTF-8", what, escaped(text)));
  return text;
}

Result<ShardTable> parse_shard(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  ShardTable shard;
  TERRACE_ASSIGN_OR_RETURN(const Header header, read_header(in));
  shard.version = header.version;
  TERRACE_ASSIGN_OR_RETURN(shard.metadata, read_metadata(in, header.n_keys));
  TERRACE_ASSIGN_OR_RETURN(shard.alignment, read_alignment(shard.metadata));
  TERRACE_RETURN_IF_ERROR(check_count(kTensorCount, header.n_tensors, kMinTensorBytes, in.left()));
  TERRACE_ASSIGN_OR_RETURN(shard.tensors, read_tensor_table(in, header.n_tensors));
  shard.data_start = (in.offset() + shard.alignment - 1) / shard.alignment * shard.alignment;
  TERRACE_RETURN_IF_ERROR(place_tensors(shard, bytes.size()));
  return shard;
}

}  // namespace terrace::gguf
