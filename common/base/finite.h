// Whether a number from outside is one: tested on its bits, for a comparison would let NaN through where a compiler
// assumes that there is none.
#pragma once

#include <bit>
#include <cstdint>

namespace terrace {

// Neither infinite nor NaN.
constexpr bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) != 0x7F800000u; }

}  // namespace terrace
