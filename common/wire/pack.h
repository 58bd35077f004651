// A row of fixed-point sums as it travels (docs/numerics.md 6): blocks of 64 values, each a width byte b in 0..8, the
// least such that all values fit a signed b-byte integer, then b planes: byte 0 of every value, byte 1, ...
// Pure functions; nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"

namespace terrace::wire {

// Bytes that pack_row() may need for n values: all blocks at width 8.
constexpr std::size_t widest_packed_bytes(std::size_t n) { return n * 8 + (n + 63) / 64; }

// Packs y into `out`, which holds widest_packed_bytes(y.size()); returns the bytes used.
std::size_t pack_row(std::span<const std::int64_t> y, std::byte* out);

// Bytes of the packed row of n_values values at the start of `packed`, read from its widths alone. kCorrupt: a width
// over 8, or fewer bytes than the widths say.
Result<std::size_t> packed_row_bytes(std::span<const std::byte> packed, std::size_t n_values);

// The same with all that unpack_add_row() refuses: after it, that cannot fail, and add_checked_row() may be called.
Result<std::size_t> check_packed_row(std::span<const std::byte> packed, std::size_t n_values);

// Adds a packed row of `sums.size()` values to sums (integers: replies come in any order) and returns the bytes read.
// kCorrupt, with sums untouched: a width over 8, a width larger than needed, or fewer bytes than the widths say.
Result<std::size_t> unpack_add_row(std::span<const std::byte> packed, std::span<std::int64_t> sums);

// The same of a row that check_packed_row() has passed, and that has not changed since: nothing is looked at again.
std::size_t add_checked_row(std::span<const std::byte> packed, std::span<std::int64_t> sums);

}  // namespace terrace::wire
