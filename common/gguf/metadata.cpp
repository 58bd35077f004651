#include "common/gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "common/gguf/text.h"

namespace terrace::gguf {
namespace {

Error wrong_type(std::string_view key, const Value& value, std::string_view wanted) {
  return Error(ErrorCode::kCorrupt, fmt::format("{} has the type {}; {} is needed", key_place(key, value.offset),
                                                value.type_text(), wanted));
}

template <class Integer>
Result<Integer> to_integer(std::string_view key, const Value& value) {
  if (const auto fits = value.integer<Integer>()) return *fits;
  if (!value.integer<std::uint64_t>() && !value.integer<std::int64_t>()) return wrong_type(key, value, "an integer");
  using Limits = std::numeric_limits<Integer>;
  return Error(ErrorCode::kCorrupt, fmt::format("{} is {}; {} to {} is the range", key_place(key, value.offset),
                                                value.text(), Limits::min(), Limits::max()));
}

Result<float> to_float(std::string_view key, const Value& value) {
  const auto wide = value.floating();
  if (!wide) return wrong_type(key, value, "a float");
  if (std::isfinite(*wide) && std::abs(*wide) > std::numeric_limits<float>::max())
    return Error(ErrorCode::kCorrupt,
                 fmt::format("{} is {}, too large for a f32", key_place(key, value.offset), *wide));
  return static_cast<float>(*wide);
}

Result<bool> to_bool(std::string_view key, const Value& value) {
  if (const auto b = value.boolean()) return *b;
  return wrong_type(key, value, "a bool");
}

Result<std::string_view> to_string(std::string_view key, const Value& value) {
  if (const auto s = value.string()) return *s;
  return wrong_type(key, value, "a string");
}

Result<const Value*> require(const Metadata& metadata, std::string_view key) {
  if (const Value* value = metadata.find(key)) return value;
  return Error(ErrorCode::kNotFound, fmt::format("{} is missing", metadata.place(key)));
}

template <class T>
using Convert = Result<T> (*)(std::string_view key, const Value& value);

template <class T>
Result<T> get(const Metadata& metadata, std::string_view key, Convert<T> convert) {
  TERRACE_ASSIGN_OR_RETURN(const Value* value, require(metadata, key));
  return convert(key, *value);
}

template <class T>
Result<T> get_or(const Metadata& metadata, std::string_view key, T fallback, Convert<T> convert) {
  const Value* value = metadata.find(key);
  return value == nullptr ? Result<T>(fallback) : convert(key, *value);
}

// The elements of an array of fixed-size values; the count is backed by bytes of the file.
template <class T>
Result<std::vector<T>> get_array(const Metadata& metadata, std::string_view key, std::string_view wanted,
                                 Convert<T> convert) {
  TERRACE_ASSIGN_OR_RETURN(const Value* value, require(metadata, key));
  if (!value->is_array() || value->element == ValueType::kString) return wrong_type(key, *value, wanted);
  std::vector<T> out;
  out.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    auto element = convert(key, value->at(i));
    if (!element.ok()) return element.error().in(fmt::format("element {}", i));
    out.push_back(*element);
  }
  return out;
}

}  // namespace

Status Metadata::seal() {
  by_key_.resize(entries_.size());
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  std::stable_sort(by_key_.begin(), by_key_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return entries_[a].key < entries_[b].key; });
  const auto twice = std::adjacent_find(by_key_.begin(), by_key_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return entries_[a].key == entries_[b].key;
  });
  if (twice == by_key_.end()) return {};
  const KeyValue& second = entries_[*(twice + 1)];
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} stands twice, first at offset {}", key_place(second.key, second.value.offset),
                           entries_[*twice].value.offset));
}

const Value* Metadata::find(std::string_view key) const {
  const auto at = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                   [&](std::uint32_t i, std::string_view k) { return entries_[i].key < k; });
  return at != by_key_.end() && entries_[*at].key == key ? &entries_[*at].value : nullptr;
}

std::string Metadata::place(std::string_view key) const {
  const Value* value = find(key);
  return key_place(key, value == nullptr ? std::nullopt : std::optional(value->offset));
}

Result<std::uint32_t> Metadata::get_u32(std::string_view key) const {
  return get(*this, key, to_integer<std::uint32_t>);
}
Result<std::uint64_t> Metadata::get_u64(std::string_view key) const {
  return get(*this, key, to_integer<std::uint64_t>);
}
Result<float> Metadata::get_f32(std::string_view key) const { return get(*this, key, to_float); }
Result<bool> Metadata::get_bool(std::string_view key) const { return get(*this, key, to_bool); }
Result<std::string_view> Metadata::get_string(std::string_view key) const { return get(*this, key, to_string); }

Result<std::uint32_t> Metadata::get_u32_or(std::string_view key, std::uint32_t fallback) const {
  return get_or(*this, key, fallback, to_integer<std::uint32_t>);
}
Result<std::uint64_t> Metadata::get_u64_or(std::string_view key, std::uint64_t fallback) const {
  return get_or(*this, key, fallback, to_integer<std::uint64_t>);
}
Result<float> Metadata::get_f32_or(std::string_view key, float fallback) const {
  return get_or(*this, key, fallback, to_float);
}
Result<bool> Metadata::get_bool_or(std::string_view key, bool fallback) const {
  return get_or(*this, key, fallback, to_bool);
}
Result<std::string_view> Metadata::get_string_or(std::string_view key, std::string_view fallback) const {
  return get_or(*this, key, fallback, to_string);
}

Result<std::vector<std::string_view>> Metadata::get_strings(std::string_view key) const {
  TERRACE_ASSIGN_OR_RETURN(const Value* value, require(*this, key));
  if (!value->is_array() || value->element != ValueType::kString) return wrong_type(key, *value, "an array of string");
  std::vector<std::string_view> out;
  out.reserve(value->count);
  const std::byte* at = value->bytes.data();
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<std::uint64_t>(at);
    out.push_back(as_text({at + sizeof length, length}));
    at += sizeof length + length;
  }
  return out;
}

Result<std::vector<std::uint32_t>> Metadata::get_u32s(std::string_view key) const {
  return get_array(*this, key, "an array of integers", to_integer<std::uint32_t>);
}
Result<std::vector<std::int32_t>> Metadata::get_i32s(std::string_view key) const {
  return get_array(*this, key, "an array of integers", to_integer<std::int32_t>);
}
Result<std::vector<float>> Metadata::get_f32s(std::string_view key) const {
  return get_array(*this, key, "an array of floats", to_float);
}
Result<std::vector<bool>> Metadata::get_bools(std::string_view key) const {
  return get_array(*this, key, "an array of bools", to_bool);
}

}  // namespace terrace::gguf
