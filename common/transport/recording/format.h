// The bytes of a recording (docs/wire.md 11). Only for common/transport/recording.
#pragma once

#include <array>
#include <cstdint>

namespace terrace::transport::recording {

inline constexpr std::array<char, 8> kMagic = {'T', 'R', 'R', 'C', 'F', 'R', 'M', 'S'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kAlignment = 16;

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(FileHeader) == 16);

struct EntryHeader {
  std::uint64_t time_ns = 0;
  std::uint32_t connection = 0;
  std::uint8_t event = 0;
  std::array<std::uint8_t, 3> reserved{};
  std::uint32_t bytes = 0;  // of the frame that follows, without padding
  std::uint32_t reserved_too = 0;
  std::uint64_t reserved_last = 0;
};
static_assert(sizeof(EntryHeader) == 32);

constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace terrace::transport::recording
