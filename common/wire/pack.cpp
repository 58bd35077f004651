#include "common/wire/pack.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/wire/pack_blocks.h"

namespace terrace::wire {

std::size_t pack_row(std::span<const std::int64_t> y, std::byte* out) {
  const BlockFunctions& blocks = block_functions();
  const std::byte* begin = out;
  const std::size_t whole = y.size() / kBlock * kBlock;
  for (std::size_t first = 0; first < whole; first += kBlock) out = blocks.pack(y.data() + first, out);
  if (whole < y.size()) out = pack_short_block(y.data() + whole, y.size() - whole, out);
  return static_cast<std::size_t>(out - begin);
}

namespace {

// Goes over the blocks of the packed row at the start of `packed`; returns its bytes. is_fine(planes, n, width) of
// each.
template <class IsFine>
Result<std::size_t> walk(std::span<const std::byte> packed, std::size_t n_values, IsFine is_fine) {
  std::size_t at = 0;
  for (std::size_t first = 0; first < n_values; first += kBlock) {
    const std::size_t n = std::min(kBlock, n_values - first);
    if (at >= packed.size())
      return Error(ErrorCode::kCorrupt, fmt::format("packed row: ends at byte {}, before the block at value {} of {}",
                                                    packed.size(), first, n_values));
    const auto width = static_cast<unsigned>(packed[at]);
    if (width > 8)
      return Error(ErrorCode::kCorrupt,
                   fmt::format("packed row: block at value {} (byte {}) has width {}, at most 8", first, at, width));
    if (packed.size() - at - 1 < n * width)
      return Error(ErrorCode::kCorrupt,
                   fmt::format("packed row: block at value {} (byte {}) needs {} bytes, {} are left", first, at,
                               n * width, packed.size() - at - 1));
    if (!is_fine(packed.data() + at + 1, n, width))
      return Error(
          ErrorCode::kCorrupt,
          fmt::format("packed row: block at value {} (byte {}) has width {}, less would do", first, at, width));
    at += 1 + n * width;
  }
  return at;
}

}  // namespace

Result<std::size_t> packed_row_bytes(std::span<const std::byte> packed, std::size_t n_values) {
  return walk(packed, n_values, [](const std::byte*, std::size_t, unsigned) { return true; });
}

Result<std::size_t> check_packed_row(std::span<const std::byte> packed, std::size_t n_values) {
  const BlockFunctions& blocks = block_functions();
  return walk(packed, n_values, [&](const std::byte* planes, std::size_t n, unsigned width) {
    return n == kBlock ? blocks.is_least(planes, width) : is_least_of_short_block(planes, n, width);
  });
}

Result<std::size_t> unpack_add_row(std::span<const std::byte> packed, std::span<std::int64_t> sums) {
  TERRACE_RETURN_IF_ERROR(check_packed_row(packed, sums.size()));
  return add_checked_row(packed, sums);
}

std::size_t add_checked_row(std::span<const std::byte> packed, std::span<std::int64_t> sums) {
  const BlockFunctions& blocks = block_functions();
  const std::byte* in = packed.data();
  for (std::size_t first = 0; first < sums.size(); first += kBlock) {
    const std::size_t n = std::min(kBlock, sums.size() - first);
    const auto width = static_cast<unsigned>(*in++);
    if (n == kBlock)
      blocks.add(in, width, sums.data() + first);
    else
      add_short_block(in, n, width, sums.data() + first);
    in += n * width;
  }
  return static_cast<std::size_t>(in - packed.data());
}

}  // namespace terrace::wire
