#include <cstring>

#include "kernels/cpu/read_stream/variants.h"

namespace terrace::kernels {
namespace {

constexpr std::size_t kLine = 64;

std::uint64_t xor_line(const std::byte* line) {
  std::uint64_t words[kLine / sizeof(std::uint64_t)];
  std::memcpy(words, line, kLine);
  return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}

}  // namespace

std::uint64_t read_stream_scalar(const ReadStreamArgs& args) {
  const std::size_t part = args.bytes / static_cast<std::size_t>(args.n_streams);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < part; at += kLine)
    for (int stream = 0; stream < args.n_streams; ++stream) {
      const std::byte* line = args.data + static_cast<std::size_t>(stream) * part + at;
      if (args.prefetch_bytes != 0) __builtin_prefetch(line + args.prefetch_bytes);
      sum ^= xor_line(line);
    }
  return sum;
}

}  // namespace terrace::kernels
