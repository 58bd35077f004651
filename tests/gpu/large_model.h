// The shape of Qwen3-30B-A3B, and the numbers of rows at which each kernel is compared with the scalar reference there.
#pragma once

#include <cstdint>

namespace terrace::test::large_model {

inline constexpr std::uint32_t kWidth = 2048;  // d_model
inline constexpr std::uint32_t kExpertWidth = 768;
inline constexpr std::uint32_t kHeads = 32, kKvHeads = 4, kHeadDim = 128;
inline constexpr std::uint32_t kQueries = kHeads * kHeadDim, kKeys = kKvHeads * kHeadDim;
inline constexpr std::uint32_t kExperts = 128, kTopK = 8;
inline constexpr std::uint32_t kVocabulary = 151936;

inline constexpr std::uint32_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 65, 512};
inline constexpr std::uint32_t kMostRows = 512;

}  // namespace terrace::test::large_model
