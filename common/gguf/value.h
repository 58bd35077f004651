// One metadata value of a GGUF file, as it lies in the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/gguf/bytes.h"

namespace terrace::gguf {

// Values are the ids in the file.
enum class ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr std::uint32_t kValueTypes = 13;

const char* name(ValueType type);  // "u8", "string", "array"
// Bytes of a scalar; 0 for strings and arrays, which say their own length.
std::uint32_t scalar_bytes(ValueType type);

// Borrows the file's mapping. Parsed, so every length inside was checked.
struct Value {
  ValueType type = ValueType::kU8;
  ValueType element = ValueType::kU8;  // of an array; never kArray
  std::uint64_t count = 1;             // elements of an array
  std::span<const std::byte> bytes;    // a scalar, a string's text, or an array's elements as the file holds them
  std::uint64_t offset = 0;            // of the value's type id in its file

  bool is_array() const { return type == ValueType::kArray; }
  // "u32", "array of string"
  std::string type_text() const;
  // The value for people: strings escaped and cut, at most max_elements of an array.
  std::string text(std::size_t max_elements = 8) const;
  // Element i < count of an array that holds no strings.
  Value at(std::uint64_t i) const;

  // Each is empty where the type differs or the number does not fit.
  template <class Integer>
  std::optional<Integer> integer() const;  // from any integer width
  std::optional<double> floating() const;  // f32 or f64
  std::optional<bool> boolean() const;
  std::optional<std::string_view> string() const;
};

template <class Integer>
std::optional<Integer> Value::integer() const {
  const auto narrow = [](auto wide) -> std::optional<Integer> {
    if (!std::in_range<Integer>(wide)) return std::nullopt;
    return static_cast<Integer>(wide);
  };
  switch (type) {
    case ValueType::kU8:
      return narrow(load<std::uint8_t>(bytes.data()));
    case ValueType::kI8:
      return narrow(load<std::int8_t>(bytes.data()));
    case ValueType::kU16:
      return narrow(load<std::uint16_t>(bytes.data()));
    case ValueType::kI16:
      return narrow(load<std::int16_t>(bytes.data()));
    case ValueType::kU32:
      return narrow(load<std::uint32_t>(bytes.data()));
    case ValueType::kI32:
      return narrow(load<std::int32_t>(bytes.data()));
    case ValueType::kU64:
      return narrow(load<std::uint64_t>(bytes.data()));
    case ValueType::kI64:
      return narrow(load<std::int64_t>(bytes.data()));
    default:
      return std::nullopt;
  }
}

struct KeyValue {
  std::string_view key;  // into the mapping
  Value value;
};

}  // namespace terrace::gguf
