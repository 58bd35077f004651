// Blocks of 64 values of a packed row (pack.h), in code for whatever this CPU has. Only for common/wire and its tests:
// the bits are the same whoever makes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::wire {

inline constexpr std::size_t kBlock = 64;  // values

struct BlockFunctions {
  const char* name;
  // The width byte and the planes of kBlock values; returns the end of what was written, at most 1 + 8 * kBlock bytes.
  std::byte* (*pack)(const std::int64_t* y, std::byte* out);
  // Adds the planes of `width` <= 8 (behind the width byte) to kBlock sums; they wrap.
  void (*add)(const std::byte* planes, unsigned width, std::int64_t* sums);
  // No smaller width would do.
  bool (*is_least)(const std::byte* planes, unsigned width);
};

// Of any CPU; what the others are compared with.
const BlockFunctions& portable_blocks();
// Null: this CPU has no AVX2, or is no x86-64.
const BlockFunctions* avx2_blocks();
// The same, packing in AVX-512. Null: this CPU has none with byte instructions.
const BlockFunctions* avx512_blocks();
// The fastest that this CPU has. Asked for once a row: a look at what the C library found when the program began.
const BlockFunctions& block_functions();

// Blocks of n < kBlock values, the last of a row.
std::byte* pack_short_block(const std::int64_t* y, std::size_t n, std::byte* out);
void add_short_block(const std::byte* planes, std::size_t n, unsigned width, std::int64_t* sums);
bool is_least_of_short_block(const std::byte* planes, std::size_t n, unsigned width);

}  // namespace terrace::wire
