// The numbers of docs/wire.md 10 that the two ends of a link compare. The frame's own version is in frame.h.
#pragma once

#include <cstdint>

namespace terrace::wire {

// Of the control plane: this build speaks every version between the two.
inline constexpr std::uint32_t kProtocolMin = 2;
inline constexpr std::uint32_t kProtocolMax = 2;

// Of the bits of every result (docs/numerics.md).
inline constexpr std::uint32_t kNumericsVersion = 1;

}  // namespace terrace::wire
