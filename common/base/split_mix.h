// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>

namespace terrace {

// Every bit of the result depends on every bit of x.
constexpr std::uint64_t split_mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
// By which splitmix64 goes on from one x to the next.
inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;

}  // namespace terrace
