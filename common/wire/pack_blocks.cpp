#include "common/wire/pack_blocks.h"

#include <array>
#include <bit>
#include <type_traits>

namespace terrace::wire {
namespace {

// The least b such that n values fit b bytes. A negative value needs the bits of its complement, and the sign one more.
unsigned width_of(const std::int64_t* y, std::size_t n) {
  std::uint64_t any = 0;
  std::uint64_t magnitude = 0;
  for (std::size_t i = 0; i < n; ++i) {
    any |= static_cast<std::uint64_t>(y[i]);
    magnitude |= static_cast<std::uint64_t>(y[i] ^ (y[i] >> 63));
  }
  return any == 0 ? 0 : static_cast<unsigned>(std::bit_width(magnitude)) / 8 + 1;
}

inline void split_planes(const std::int64_t* y, std::size_t n, unsigned width, std::byte* __restrict out) {
  for (unsigned plane = 0; plane < width; ++plane, out += n)
    for (std::size_t i = 0; i < n; ++i)
      out[i] = static_cast<std::byte>(static_cast<std::uint64_t>(y[i]) >> (8 * plane));
}

inline std::byte* pack_values(const std::int64_t* y, std::size_t n, std::byte* out) {
  const unsigned width = width_of(y, n);
  *out++ = static_cast<std::byte>(width);
  split_planes(y, n, width, out);
  return out + n * width;
}

// Adds the n values of `width` >= 1 planes, gathered in the narrowest Word that holds them. Unsigned, since a peer's
// values may be anything: sums then wrap, and the range check on a row's total refuses them.
template <class Word>
inline void add_planes(const std::byte* in, std::size_t n, unsigned width, std::int64_t* __restrict sums) {
  std::array<Word, kBlock> values;
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<Word>(in[i]);
  for (unsigned plane = 1; plane < width; ++plane) {
    in += n;
    for (std::size_t i = 0; i < n; ++i) values[i] |= static_cast<Word>(in[i]) << (8 * plane);
  }
  const Word sign = Word{1} << (8 * width - 1);
  for (std::size_t i = 0; i < n; ++i) {
    const auto value = static_cast<std::make_signed_t<Word>>((values[i] ^ sign) - sign);
    sums[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sums[i]) +
                                        static_cast<std::uint64_t>(std::int64_t{value}));
  }
}

inline void add_values(const std::byte* in, std::size_t n, unsigned width, std::int64_t* sums) {
  if (width == 0) return;
  if (width <= 4)
    add_planes<std::uint32_t>(in, n, width, sums);
  else
    add_planes<std::uint64_t>(in, n, width, sums);
}

// One byte less would do when the highest plane only repeats the sign of the one below.
inline bool is_least_of(const std::byte* planes, std::size_t n, unsigned width) {
  if (width == 0) return true;
  const auto* top = reinterpret_cast<const std::int8_t*>(planes + (width - 1) * n);
  unsigned differs = 0;
  if (width == 1) {
    for (std::size_t i = 0; i < n; ++i) differs |= static_cast<std::uint8_t>(top[i]);
  } else {
    const auto* below = top - n;
    for (std::size_t i = 0; i < n; ++i) differs |= static_cast<std::uint8_t>(top[i] ^ (below[i] >> 7));
  }
  return differs != 0;
}

// A constant count lets the compiler unroll and vectorise.
std::byte* pack_block(const std::int64_t* y, std::byte* out) { return pack_values(y, kBlock, out); }
void add_block(const std::byte* planes, unsigned width, std::int64_t* sums) { add_values(planes, kBlock, width, sums); }
bool is_least(const std::byte* planes, unsigned width) { return is_least_of(planes, kBlock, width); }

constexpr BlockFunctions kPortable{"portable", pack_block, add_block, is_least};

}  // namespace

const BlockFunctions& portable_blocks() { return kPortable; }

const BlockFunctions& block_functions() {
  if (const BlockFunctions* const avx512 = avx512_blocks()) return *avx512;
  if (const BlockFunctions* const avx2 = avx2_blocks()) return *avx2;
  return kPortable;
}

std::byte* pack_short_block(const std::int64_t* y, std::size_t n, std::byte* out) { return pack_values(y, n, out); }

void add_short_block(const std::byte* planes, std::size_t n, unsigned width, std::int64_t* sums) {
  add_values(planes, n, width, sums);
}

bool is_least_of_short_block(const std::byte* planes, std::size_t n, unsigned width) {
  return is_least_of(planes, n, width);
}

}  // namespace terrace::wire
