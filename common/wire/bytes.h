// Loads and stores of the wire's little-endian fields and fixed structs. Only for common/wire.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <fmt/format.h>

#include "common/base/result.h"
#include "common/wire/frame.h"

namespace terrace::wire {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian and so must the host be");

template <class T>
T load(const std::byte* at) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(at, &value, sizeof(T));
}

// A struct that travels as it lies: no padding inside, so that no stray memory leaves the process.
template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
// A section with its header and padding.
constexpr std::uint64_t section_bytes(std::uint64_t data) { return kSectionHeaderBytes + padded(data); }

template <class... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...));
}

inline Status expect_type(const Frame& frame, FrameType type) {
  if (frame.header.type == type) return {};
  return corrupt("frame {} of lane {} is {}, expected {}", frame.header.sequence, name(frame.header.lane),
                 name(frame.header.type), name(type));
}

// The section's data, which must have exactly `bytes` bytes.
inline Result<std::span<const std::byte>> require_section(const Frame& frame, SectionTag tag, std::uint16_t detail,
                                                          std::uint64_t bytes) {
  const Section* section = frame.find(tag, detail);
  if (section == nullptr)
    return corrupt("{} frame: section {} (detail {}) is absent", name(frame.header.type), name(tag), detail);
  if (section->data.size() != bytes)
    return corrupt("{} frame: section {} (detail {}) has {} bytes, expected {}", name(frame.header.type), name(tag),
                   detail, section->data.size(), bytes);
  return section->data;
}

// The one struct that the section holds.
template <class T>
Result<T> read_struct(const Frame& frame, SectionTag tag) {
  TERRACE_ASSIGN_OR_RETURN(const auto data, require_section(frame, tag, 0, sizeof(T)));
  return load<T>(data.data());
}

// The section as `count` values of T in place: sections lie at 16-byte boundaries of an aligned frame.
template <class T>
Result<std::span<const T>> read_array(const Frame& frame, SectionTag tag, std::uint64_t count) {
  static_assert(alignof(T) <= kAlignment && std::is_trivially_copyable_v<T>);
  TERRACE_ASSIGN_OR_RETURN(const auto data, require_section(frame, tag, 0, count * sizeof(T)));
  return std::span<const T>(reinterpret_cast<const T*>(data.data()), static_cast<std::size_t>(count));
}

}  // namespace terrace::wire
