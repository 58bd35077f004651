#include "common/wire/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace terrace::wire {
namespace {

constexpr std::size_t kBlock = 64;

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

void split_planes(const std::int64_t* y, std::size_t n, unsigned width, std::byte* __restrict out) {
  for (unsigned plane = 0; plane < width; ++plane, out += n)
    for (std::size_t i = 0; i < n; ++i)
      out[i] = static_cast<std::byte>(static_cast<std::uint64_t>(y[i]) >> (8 * plane));
}

std::byte* pack_block(const std::int64_t* y, std::size_t n, std::byte* out) {
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

inline void add_block(const std::byte* in, std::size_t n, unsigned width, std::int64_t* sums) {
  if (width == 0) return;
  if (width <= 4)
    add_planes<std::uint32_t>(in, n, width, sums);
  else
    add_planes<std::uint64_t>(in, n, width, sums);
}

// One byte less would do when the highest plane only repeats the sign of the one below.
bool is_least_width(const std::byte* planes, std::size_t n, unsigned width) {
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

}  // namespace

std::size_t pack_row(std::span<const std::int64_t> y, std::byte* out) {
  const std::byte* begin = out;
  const std::size_t whole = y.size() / kBlock * kBlock;
  for (std::size_t first = 0; first < whole; first += kBlock) out = pack_block(y.data() + first, kBlock, out);
  if (whole < y.size()) out = pack_block(y.data() + whole, y.size() - whole, out);
  return static_cast<std::size_t>(out - begin);
}

Result<std::size_t> packed_row_bytes(std::span<const std::byte> packed, std::size_t n_values) {
  std::size_t at = 0;
  for (std::size_t first = 0; first < n_values; first += kBlock) {
    const std::size_t n = std::min(kBlock, n_values - first);
    if (at >= packed.size())
      return Error(ErrorCode::kCorrupt, fmt::format("packed row: ends at byte {}, before the block at value {} of {}",
                                                    packed.size(), first, n_values));
    const auto width = static_cast<std::size_t>(packed[at]);
    if (width > 8)
      return Error(ErrorCode::kCorrupt,
                   fmt::format("packed row: block at value {} (byte {}) has width {}, at most 8", first, at, width));
    if (packed.size() - at - 1 < n * width)
      return Error(ErrorCode::kCorrupt,
                   fmt::format("packed row: block at value {} (byte {}) needs {} bytes, {} are left", first, at,
                               n * width, packed.size() - at - 1));
    at += 1 + n * width;
  }
  return at;
}

Result<std::size_t> check_packed_row(std::span<const std::byte> packed, std::size_t n_values) {
  TERRACE_ASSIGN_OR_RETURN(const std::size_t bytes, packed_row_bytes(packed, n_values));
  std::size_t at = 0;
  for (std::size_t first = 0; first < n_values; first += kBlock) {
    const std::size_t n = std::min(kBlock, n_values - first);
    const auto width = static_cast<unsigned>(packed[at]);
    // A constant count lets the compiler unroll and vectorise: all blocks but the last have it.
    const std::byte* planes = packed.data() + at + 1;
    if (!(n == kBlock ? is_least_width(planes, kBlock, width) : is_least_width(planes, n, width)))
      return Error(
          ErrorCode::kCorrupt,
          fmt::format("packed row: block at value {} (byte {}) has width {}, less would do", first, at, width));
    at += 1 + n * width;
  }
  return bytes;
}

Result<std::size_t> unpack_add_row(std::span<const std::byte> packed, std::span<std::int64_t> sums) {
  TERRACE_ASSIGN_OR_RETURN(const std::size_t bytes, check_packed_row(packed, sums.size()));
  const std::byte* in = packed.data();
  for (std::size_t first = 0; first < sums.size(); first += kBlock) {
    const std::size_t n = std::min(kBlock, sums.size() - first);
    const auto width = static_cast<unsigned>(*in++);
    if (n == kBlock)
      add_block(in, kBlock, width, sums.data() + first);
    else
      add_block(in, n, width, sums.data() + first);
    in += n * width;
  }
  return bytes;
}

}  // namespace terrace::wire
