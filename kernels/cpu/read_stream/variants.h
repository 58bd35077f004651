// The variants of read_stream.h, one an ISA; a plain header for their files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

// Bytes to read once, from the first to the last.
struct ReadStreamArgs {
  const std::byte* data = nullptr;  // 64-byte aligned
  std::size_t bytes = 0;            // a multiple of kReadStreamUnit
  // 1, 2 or 4 equal parts, read side by side: a core follows several streams at once, as a GEMV over several rows does.
  int n_streams = 1;
  std::size_t prefetch_bytes = 0;  // how far ahead of each stream lines are asked for; 0: not at all
};
inline constexpr std::size_t kReadStreamUnit = 512;  // four streams of two cache lines

using ReadStream = std::uint64_t(const ReadStreamArgs& args);

ReadStream read_stream_scalar;
ReadStream read_stream_avx2;

}  // namespace terrace::kernels
