// Packing blocks of 64 values in AVX-512: eight vectors of eight values. As pack_avx2.cpp in the compiler's vector
// types, and for the same reasons. Unpacking is AVX2's: it is mostly shuffles, of which a core does two of half the
// width at a time, but one of the full (15 ns a block, against 21 in AVX-512 on a Xeon of the fourth generation).
#include <bit>

#include "common/wire/pack_blocks.h"
#include "common/wire/vectors.h"

namespace terrace::wire {

#if defined(__x86_64__)
namespace {

#define TERRACE_AVX512 __attribute__((target("avx512f,avx512bw")))
#define TERRACE_AVX512_INLINE __attribute__((target("avx512f,avx512bw"), always_inline)) inline

using Longs = std::int64_t __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Bytes = std::int8_t __attribute__((vector_size(64)));

TERRACE_AVX512_INLINE std::uint64_t any_of(const Longs& values) {
  std::uint64_t any = 0;
  for (int i = 0; i < 8; ++i) any |= static_cast<std::uint64_t>(values[i]);
  return any;
}

// In lanes of four values: their bytes 0 side by side, their bytes 1, ...
TERRACE_AVX512_INLINE void transpose_bytes(Ints& values) {
  const Bytes bytes = reinterpret_cast<Bytes>(values);
  values = reinterpret_cast<Ints>(
      __builtin_shufflevector(bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20, 24, 28, 17,
                              21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31, 32, 36, 40, 44, 33, 37, 41, 45, 34, 38, 42,
                              46, 35, 39, 43, 47, 48, 52, 56, 60, 49, 53, 57, 61, 50, 54, 58, 62, 51, 55, 59, 63));
}

// Vector i has quarter i of the values, in lanes of four: ints p of all lanes are plane p, in order.
TERRACE_AVX512_INLINE void gather_planes(const Ints (&quarters)[4], Ints (&planes)[4]) {
  Ints low[2], high[2];  // planes 0 and 1 of two quarters, planes 2 and 3
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Ints &a = quarters[2 * i], &b = quarters[2 * i + 1];
    low[i] = __builtin_shufflevector(a, b, 0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    high[i] = __builtin_shufflevector(a, b, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
  }
  planes[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
  planes[1] = __builtin_shufflevector(low[0], low[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  planes[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
  planes[3] = __builtin_shufflevector(high[0], high[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
// The low halves of the values (first = 0) or the high ones (first = 1), as `n` planes.
template <int first>
TERRACE_AVX512_INLINE void store_planes(const Longs (&values)[8], unsigned n, std::byte* out) {
  Ints quarters[4], planes[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Ints a = reinterpret_cast<Ints>(values[2 * i]), b = reinterpret_cast<Ints>(values[2 * i + 1]);
    quarters[i] = __builtin_shufflevector(a, b, first, first + 2, first + 4, first + 6, first + 8, first + 10,
                                          first + 12, first + 14, first + 16, first + 18, first + 20, first + 22,
                                          first + 24, first + 26, first + 28, first + 30);
    transpose_bytes(quarters[i]);
  }
  gather_planes(quarters, planes);
#pragma GCC unroll 4
  for (unsigned plane = 0; plane < 4; ++plane) {
    if (plane >= n) return;
    store_vector(planes[plane], out + plane * kBlock);
  }
}

TERRACE_AVX512 std::byte* pack_block(const std::int64_t* y, std::byte* out) {
  Longs values[8], any{}, magnitude{};
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) {
    load_vector(y + 8 * i, values[i]);
    any |= values[i];
    magnitude |= values[i] ^ (values[i] >> 63);
  }
  const std::uint64_t magnitudes = any_of(magnitude);
  const unsigned width =
      magnitudes == 0 && any_of(any) == 0 ? 0 : static_cast<unsigned>(std::bit_width(magnitudes)) / 8 + 1;
  *out++ = static_cast<std::byte>(width);
  if (width == 0) return out;
  store_planes<0>(values, width < 4 ? width : 4, out);
  if (width > 4) store_planes<1>(values, width - 4, out + 4 * kBlock);
  return out + width * kBlock;
}

}  // namespace

const BlockFunctions* avx512_blocks() {
  const BlockFunctions* const avx2 = avx2_blocks();
  if (avx2 == nullptr || !__builtin_cpu_supports("avx512bw")) return nullptr;
  static const BlockFunctions blocks{"avx512", pack_block, avx2->add, avx2->is_least};
  return &blocks;
}

#else

const BlockFunctions* avx512_blocks() { return nullptr; }

#endif

}  // namespace terrace::wire
