// Where the header's fields lie, and the checksum over a frame (docs/wire.md). Only for common/wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#define XXH_STATIC_LINKING_ONLY  // declares the state's layout, so that it needs no heap
#include <xxhash.h>
#ifdef TERRACE_HAS_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // the same values from the widest vectors that this CPU has
#endif

#include "common/wire/frame.h"

namespace terrace::wire {

namespace offset {
inline constexpr std::size_t kMagic = 0;
inline constexpr std::size_t kVersion = 4;
inline constexpr std::size_t kType = 6;
inline constexpr std::size_t kLane = 7;
inline constexpr std::size_t kFlags = 8;
inline constexpr std::size_t kSectionCount = 10;
inline constexpr std::size_t kLayer = 12;
inline constexpr std::size_t kSession = 16;
inline constexpr std::size_t kSequence = 24;
inline constexpr std::size_t kEpoch = 32;
inline constexpr std::size_t kBodyLength = 40;
inline constexpr std::size_t kCreditFrames = 44;
inline constexpr std::size_t kCreditBytes = 48;
inline constexpr std::size_t kChecksum = 56;
}  // namespace offset

// XXH3-64 over the frame with eight zero bytes where the checksum stands. The state lives on the stack; parts are read
// where they lie.
class Checksum {
 public:
  Checksum() { XXH3_64bits_reset(&state_); }

  void add_header(const std::byte* header) {
    std::array<std::byte, kHeaderBytes> copy;
    std::memcpy(copy.data(), header, kHeaderBytes);
    std::memset(copy.data() + offset::kChecksum, 0, sizeof(std::uint64_t));
    add(copy);
  }
  void add(std::span<const std::byte> part) {
    if (!part.empty()) XXH3_64bits_update(&state_, part.data(), part.size());
  }
  std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace terrace::wire
