#include "common/gguf/writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "common/gguf/bytes.h"
#include "common/gguf/text.h"

namespace terrace::gguf {
namespace {

constexpr std::uint32_t kVersion = 3;

std::uint64_t padding(std::uint64_t offset) {
  return (kDefaultAlignment - offset % kDefaultAlignment) % kDefaultAlignment;
}

void append_string(std::string& out, std::string_view text) {
  append(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

// Empty unless a name stands twice.
std::string_view find_twice(std::vector<std::string>& names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::string_view() : std::string_view(*twice);
}

}  // namespace

Result<Writer> Writer::create(const std::filesystem::path& path) {
  TERRACE_ASSIGN_OR_RETURN(auto file, OutputFile::create(path));
  return Writer(std::move(file));
}

void Writer::fail(std::string text) {
  if (!error_) error_ = Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file_.path().string(), text));
}

void Writer::begin_key(std::string_view key, ValueType type) {
  if (data_begun_) fail(fmt::format("key {} comes after the first data", escaped(key)));
  if (key.empty() || key.size() > kMaxKeyBytes || !is_printable(key))
    fail(fmt::format("key \"{}\" is empty, too long or not printable", escaped(key)));
  key_names_.emplace_back(key);
  append_string(keys_, key);
  append(keys_, type);
}

template <class T>
void Writer::add_scalar(std::string_view key, ValueType type, T value) {
  begin_key(key, type);
  append(keys_, value);
}

template <class T>
void Writer::add_array(std::string_view key, ValueType element, std::span<const T> values) {
  begin_key(key, ValueType::kArray);
  append(keys_, element);
  append(keys_, static_cast<std::uint64_t>(values.size()));
  keys_ += as_text(std::as_bytes(values));
}

void Writer::add_u16(std::string_view key, std::uint16_t value) { add_scalar(key, ValueType::kU16, value); }
void Writer::add_u32(std::string_view key, std::uint32_t value) { add_scalar(key, ValueType::kU32, value); }
void Writer::add_i32(std::string_view key, std::int32_t value) { add_scalar(key, ValueType::kI32, value); }
void Writer::add_u64(std::string_view key, std::uint64_t value) { add_scalar(key, ValueType::kU64, value); }
void Writer::add_f32(std::string_view key, float value) { add_scalar(key, ValueType::kF32, value); }
void Writer::add_bool(std::string_view key, bool value) {
  add_scalar(key, ValueType::kBool, static_cast<std::uint8_t>(value));
}

void Writer::add_string(std::string_view key, std::string_view value) {
  begin_key(key, ValueType::kString);
  append_string(keys_, value);
}

void Writer::add_strings(std::string_view key, std::span<const std::string> values) {
  begin_key(key, ValueType::kArray);
  append(keys_, ValueType::kString);
  append(keys_, static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) append_string(keys_, value);
}

void Writer::add_u32s(std::string_view key, std::span<const std::uint32_t> values) {
  add_array(key, ValueType::kU32, values);
}
void Writer::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  add_array(key, ValueType::kI32, values);
}
void Writer::add_f32s(std::string_view key, std::span<const float> values) { add_array(key, ValueType::kF32, values); }

void Writer::add_tensor(std::string_view name, TensorType type, std::span<const std::uint64_t> shape) {
  if (data_begun_) return fail(fmt::format("tensor {} comes after the first data", escaped(name)));
  if (name.empty() || name.size() > kMaxTensorNameBytes || !is_printable(name))
    return fail(fmt::format("tensor name \"{}\" is empty, too long or not printable", escaped(name)));
  TensorInfo tensor;
  tensor.name = std::string(name);
  tensor.type = type;
  tensor.n_dims = static_cast<std::uint32_t>(shape.size());
  if (shape.empty() || shape.size() > kMaxRank)
    return fail(fmt::format("tensor {} has {} dimensions", name, shape.size()));
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  if (auto status = check_size(tensor); !status.ok())
    return fail(fmt::format("tensor {}: {}", name, status.error().text()));
  tensor_names_.emplace_back(name);
  append_string(table_, name);
  append(table_, tensor.n_dims);
  for (const std::uint64_t n : shape) append(table_, n);
  append(table_, type);
  append(table_, next_offset_);
  sizes_.push_back(tensor.bytes);
  next_offset_ += tensor.bytes + padding(tensor.bytes);
}

Status Writer::begin_data() {
  if (const auto twice = find_twice(key_names_); !twice.empty()) fail(fmt::format("key {} was added twice", twice));
  if (const auto twice = find_twice(tensor_names_); !twice.empty())
    fail(fmt::format("tensor {} was added twice", twice));
  if (error_) return *error_;
  std::string head = "GGUF";
  append(head, kVersion);
  append(head, static_cast<std::uint64_t>(sizes_.size()));
  append(head, static_cast<std::uint64_t>(key_names_.size()));
  TERRACE_RETURN_IF_ERROR(file_.write(as_bytes(head)));
  TERRACE_RETURN_IF_ERROR(file_.write(as_bytes(keys_)));
  TERRACE_RETURN_IF_ERROR(file_.write(as_bytes(table_)));
  TERRACE_RETURN_IF_ERROR(file_.write(as_bytes(std::string(padding(file_.offset()), '\0'))));
  data_begun_ = true;
  return {};
}

Status Writer::write(std::span<const std::byte> bytes) {
  if (!data_begun_) TERRACE_RETURN_IF_ERROR(begin_data());
  if (error_) return *error_;
  while (!bytes.empty()) {
    if (tensor_ == sizes_.size())
      return Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} bytes more than the {} tensors hold",
                                                            file_.path().string(), bytes.size(), sizes_.size()));
    const auto now = std::min<std::uint64_t>(bytes.size(), sizes_[tensor_] - written_);
    TERRACE_RETURN_IF_ERROR(file_.write(bytes.first(now)));
    bytes = bytes.subspan(now);
    written_ += now;
    if (written_ < sizes_[tensor_]) continue;
    TERRACE_RETURN_IF_ERROR(file_.write(as_bytes(std::string(padding(written_), '\0'))));
    ++tensor_;
    written_ = 0;
  }
  return {};
}

Status Writer::finish() {
  if (!data_begun_) TERRACE_RETURN_IF_ERROR(begin_data());
  if (error_) return *error_;
  if (tensor_ != sizes_.size())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: the data of tensor {} of {} is not complete: {} of {} bytes", file_.path().string(),
                             tensor_ + 1, sizes_.size(), written_, sizes_[tensor_]));
  return file_.commit();
}

}  // namespace terrace::gguf
