#include <immintrin.h>

#include "kernels/cpu/read_stream/variants.h"

namespace terrace::kernels {
namespace {

__m256i load(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// Two lines of each stream a turn; an accumulator for each line keeps the XORs (one cycle) far from being the limit.
template <int kStreams, bool kPrefetch>
__m256i read(const std::byte* data, std::size_t bytes, std::size_t ahead) {
  constexpr std::size_t kStep = 128;
  const std::size_t part = bytes / kStreams;
  __m256i sums[kStreams][2];
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) sums[s][0] = sums[s][1] = _mm256_setzero_si256();
  for (std::size_t at = 0; at < part; at += kStep) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* p = data + s * part + at;
      if constexpr (kPrefetch) {
        _mm_prefetch(reinterpret_cast<const char*>(p + ahead), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(p + ahead + 64), _MM_HINT_T0);
      }
      sums[s][0] = _mm256_xor_si256(sums[s][0], _mm256_xor_si256(load(p), load(p + 32)));
      sums[s][1] = _mm256_xor_si256(sums[s][1], _mm256_xor_si256(load(p + 64), load(p + 96)));
    }
  }
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) sum = _mm256_xor_si256(sum, _mm256_xor_si256(sums[s][0], sums[s][1]));
  return sum;
}

template <int kStreams>
__m256i read(const ReadStreamArgs& args) {
  return args.prefetch_bytes == 0 ? read<kStreams, false>(args.data, args.bytes, 0)
                                  : read<kStreams, true>(args.data, args.bytes, args.prefetch_bytes);
}

__m256i read(const ReadStreamArgs& args) {
  switch (args.n_streams) {
    case 4:
      return read<4>(args);
    case 2:
      return read<2>(args);
    default:
      return read<1>(args);
  }
}

}  // namespace

std::uint64_t read_stream_avx2(const ReadStreamArgs& args) {
  alignas(32) std::uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), read(args));
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

}  // namespace terrace::kernels
