// Little-endian bytes from files that are hostile until checked, and the way back.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "common/base/result.h"

namespace terrace::gguf {

static_assert(std::endian::native == std::endian::little, "the formats here are read as they lie in memory");

// Reads a T at any alignment.
template <class T>
T load(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Walks a span from its begin to its end. Every read is checked against the bytes left; a failed read is kCorrupt,
// its text says what was read and where, and nothing is consumed. The span outlives the reader and what it returns.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return bytes_.size() - offset_; }

  // `what` names the thing in the message: "the tensor count".
  template <class T>
  Result<T> read(std::string_view what) {
    auto bytes = take(sizeof(T), what);
    if (!bytes.ok()) return bytes.error();
    return load<T>(bytes->data());
  }

  Result<std::span<const std::byte>> take(std::uint64_t n, std::string_view what) {
    if (n > left()) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("{} at offset {} takes {} bytes and {} are left: truncated or damaged", what, offset_, n,
                               left()));
    }
    const auto taken = bytes_.subspan(offset_, n);
    offset_ += n;
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t offset_ = 0;  // <= bytes_.size()
};

// Appends a scalar's bytes.
template <class T>
void append(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  const std::size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace terrace::gguf
