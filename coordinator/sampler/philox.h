// Philox4x32 with 10 rounds: random bits as a function of a key and a counter, with no state in between.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; tested with the
// known answers that its authors publish (Random123).
#pragma once

#include <array>
#include <cstdint>

namespace terrace::sampler {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key);

}  // namespace terrace::sampler
