#include "common/gguf/value.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/gguf/text.h"

namespace terrace::gguf {
namespace {

struct TypeRow {
  const char* name;
  std::uint32_t bytes;
};
constexpr std::array<TypeRow, kValueTypes> kTypes = {{{"u8", 1},
                                                      {"i8", 1},
                                                      {"u16", 2},
                                                      {"i16", 2},
                                                      {"u32", 4},
                                                      {"i32", 4},
                                                      {"f32", 4},
                                                      {"bool", 1},
                                                      {"string", 0},
                                                      {"array", 0},
                                                      {"u64", 8},
                                                      {"i64", 8},
                                                      {"f64", 8}}};

const TypeRow& row(ValueType type) {
  const auto id = static_cast<std::uint32_t>(type);
  TERRACE_CHECK(id < kValueTypes, "a value type that the reader does not let through");
  return kTypes[id];
}

// With what stands inside told from what stands around it.
std::string quoted(std::string_view text) {
  std::string inside;
  for (const char c : text) {
    if (c == '"' || c == '\\') inside += '\\';
    inside += c;
  }
  return '"' + escaped(inside) + '"';
}

std::string strings_text(const Value& array, std::uint64_t shown) {
  std::string out;
  ByteReader in(array.bytes);
  for (std::uint64_t i = 0; i < shown; ++i) {
    const auto length = in.read<std::uint64_t>("a string's length");
    const auto text = in.take(length.value(), "a string");
    out += (i == 0 ? "" : ", ") + quoted(as_text(text.value()));
  }
  return out;
}

}  // namespace

const char* name(ValueType type) { return row(type).name; }
std::uint32_t scalar_bytes(ValueType type) { return row(type).bytes; }

std::string Value::type_text() const {
  return is_array() ? fmt::format("array of {}", name(element)) : std::string(name(type));
}

Value Value::at(std::uint64_t i) const {
  const std::uint32_t width = scalar_bytes(element);
  TERRACE_CHECK(is_array() && width != 0 && i < count, "an element that the array does not have");
  return {element, element, 1, bytes.subspan(i * width, width), offset};
}

std::optional<double> Value::floating() const {
  if (type == ValueType::kF32) return load<float>(bytes.data());
  if (type == ValueType::kF64) return load<double>(bytes.data());
  return std::nullopt;
}

std::optional<bool> Value::boolean() const {
  if (type != ValueType::kBool) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> Value::string() const {
  if (type != ValueType::kString) return std::nullopt;
  return as_text(bytes);
}

std::string Value::text(std::size_t max_elements) const {
  if (const auto s = string()) return escaped(*s);
  if (const auto b = boolean()) return *b ? "true" : "false";
  if (const auto f = floating())
    return type == ValueType::kF32 ? fmt::format("{}", load<float>(bytes.data())) : fmt::format("{}", *f);
  if (const auto u = integer<std::uint64_t>()) return fmt::format("{}", *u);
  if (const auto i = integer<std::int64_t>()) return fmt::format("{}", *i);
  const std::uint64_t shown = std::min<std::uint64_t>(count, max_elements);
  std::string out = "[";
  if (element == ValueType::kString) {
    out += strings_text(*this, shown);
  } else {
    for (std::uint64_t i = 0; i < shown; ++i) out += (i == 0 ? "" : ", ") + at(i).text();
  }
  return out + (shown < count ? fmt::format(", ... {} in all]", count) : "]");
}

}  // namespace terrace::gguf
