// Blocks of 64 values in AVX2. Written in the compiler's vector types: intrinsics are the kernels' (include law), and a
// function's own target keeps these instructions out of everything else that this file includes.
#include "common/wire/pack_blocks.h"

#include <bit>

#include "common/wire/vectors.h"

namespace terrace::wire {

#if defined(__x86_64__)
namespace {

#define TERRACE_AVX2 __attribute__((target("avx2")))
#define TERRACE_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

using Quads = std::int64_t __attribute__((vector_size(32)));
using UnsignedQuads = std::uint64_t __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
using HalfInts = std::int32_t __attribute__((vector_size(16)));
using Words = std::int16_t __attribute__((vector_size(32)));
using Bytes = std::int8_t __attribute__((vector_size(32)));

TERRACE_AVX2_INLINE std::uint64_t any_of(const Quads& values) {
  return static_cast<std::uint64_t>((values[0] | values[1]) | (values[2] | values[3]));
}

TERRACE_AVX2_INLINE unsigned width_of(const std::int64_t* y) {
  Quads any{}, magnitude{};
  for (std::size_t i = 0; i < kBlock; i += 4) {
    Quads values;
    load_vector(y + i, values);
    any |= values;
    magnitude |= values ^ (values < 0);
  }
  return any_of(any) == 0 ? 0 : static_cast<unsigned>(std::bit_width(any_of(magnitude))) / 8 + 1;
}

// Four vectors of eight values of 32 bits -> planes of their bytes, `n` of them, kBlock bytes apart.
TERRACE_AVX2_INLINE void store_planes(const Ints (&values)[4], unsigned n, std::byte* out) {
  Ints by_plane[4];  // in each half: byte 0 of four values, byte 1 of the same, ...
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Bytes bytes = reinterpret_cast<Bytes>(values[i]);
    const Bytes sorted = __builtin_shufflevector(bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16,
                                                 20, 24, 28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31);
    by_plane[i] = reinterpret_cast<Ints>(sorted);
  }
  const Ints low01 = __builtin_shufflevector(by_plane[0], by_plane[1], 0, 8, 1, 9, 4, 12, 5, 13);
  const Ints low23 = __builtin_shufflevector(by_plane[2], by_plane[3], 0, 8, 1, 9, 4, 12, 5, 13);
  const Ints high01 = __builtin_shufflevector(by_plane[0], by_plane[1], 2, 10, 3, 11, 6, 14, 7, 15);
  const Ints high23 = __builtin_shufflevector(by_plane[2], by_plane[3], 2, 10, 3, 11, 6, 14, 7, 15);
  const Ints planes[4] = {__builtin_shufflevector(low01, low23, 0, 1, 8, 9, 4, 5, 12, 13),
                          __builtin_shufflevector(low01, low23, 2, 3, 10, 11, 6, 7, 14, 15),
                          __builtin_shufflevector(high01, high23, 0, 1, 8, 9, 4, 5, 12, 13),
                          __builtin_shufflevector(high01, high23, 2, 3, 10, 11, 6, 7, 14, 15)};
#pragma GCC unroll 4
  for (unsigned plane = 0; plane < 4; ++plane) {
    if (plane >= n) return;
    const Ints in_order = __builtin_shufflevector(planes[plane], planes[plane], 0, 4, 1, 5, 2, 6, 3, 7);
    store_vector(in_order, out + plane * kBlock);
  }
}

// The low halves of kBlock values (first = 0), or the high ones (first = 1).
template <int first>
TERRACE_AVX2_INLINE void split_halves(const std::int64_t* y, unsigned n_planes, std::byte* out) {
  for (std::size_t half = 0; half < kBlock; half += 32) {
    Ints values[4];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      Ints a, b;
      load_vector(y + half + 8 * i, a);
      load_vector(y + half + 8 * i + 4, b);
      values[i] = __builtin_shufflevector(a, b, first, first + 2, first + 4, first + 6, first + 8, first + 10,
                                          first + 12, first + 14);
    }
    store_planes(values, n_planes, out + half);
  }
}

TERRACE_AVX2 std::byte* pack_block(const std::int64_t* y, std::byte* out) {
  const unsigned width = width_of(y);
  *out++ = static_cast<std::byte>(width);
  if (width == 0) return out;
  split_halves<0>(y, width < 4 ? width : 4, out);
  if (width > 4) split_halves<1>(y, width - 4, out + 4 * kBlock);
  return out + width * kBlock;
}

// Adds to four sums, which may wrap.
TERRACE_AVX2_INLINE void add_four(const Quads& values, std::int64_t* sums) {
  UnsignedQuads total;
  load_vector(sums, total);
  total += reinterpret_cast<UnsignedQuads>(values);
  store_vector(total, sums);
}

// 32 of the block's values, of 1 to 4 bytes each, with their signs: values[i] has the four from 4 i on, and the four
// from 16 + 4 i on.
template <int width>
TERRACE_AVX2_INLINE void load_ints(const std::byte* planes, Ints (&values)[4]) {
  Bytes plane[4] = {};
#pragma GCC unroll 4
  for (int i = 0; i < width; ++i) load_vector(planes + static_cast<std::size_t>(i) * kBlock, plane[i]);
  Words pairs[2][2];  // bytes 0 and 1 of a value, bytes 2 and 3; of the low and the high eight values of each half
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Bytes &a = plane[2 * i], &b = plane[2 * i + 1];
    pairs[0][i] = reinterpret_cast<Words>(__builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38,
                                                                  7, 39, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
                                                                  22, 54, 23, 55));
    pairs[1][i] = reinterpret_cast<Words>(__builtin_shufflevector(a, b, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45,
                                                                  14, 46, 15, 47, 24, 56, 25, 57, 26, 58, 27, 59, 28,
                                                                  60, 29, 61, 30, 62, 31, 63));
  }
  constexpr int kUnused = 32 - 8 * width;  // bits
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Words &a = pairs[i][0], &b = pairs[i][1];
    const Words low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
    const Words high = __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
    values[2 * i] = (reinterpret_cast<Ints>(low) << kUnused) >> kUnused;
    values[2 * i + 1] = (reinterpret_cast<Ints>(high) << kUnused) >> kUnused;
  }
}

template <int width>
TERRACE_AVX2_INLINE void add_half(const std::byte* planes, std::int64_t* sums) {
  Ints values[4], tops[4];  // the lower 32 bits of each, and the upper ones
  load_ints<(width < 4 ? width : 4)>(planes, values);
  if constexpr (width > 4) load_ints<width - 4>(planes + 4 * kBlock, tops);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    if constexpr (width <= 4) tops[i] = values[i] >> 31;
    const Quads first = reinterpret_cast<Quads>(__builtin_shufflevector(values[i], tops[i], 0, 8, 1, 9, 4, 12, 5, 13));
    const Quads last = reinterpret_cast<Quads>(__builtin_shufflevector(values[i], tops[i], 2, 10, 3, 11, 6, 14, 7, 15));
    add_four(__builtin_shufflevector(first, last, 0, 1, 4, 5), sums + 4 * i);
    add_four(__builtin_shufflevector(first, last, 2, 3, 6, 7), sums + 4 * i + 16);
  }
}

template <int width>
TERRACE_AVX2 void add_all(const std::byte* planes, std::int64_t* sums) {
  add_half<width>(planes, sums);
  add_half<width>(planes + kBlock / 2, sums + kBlock / 2);
}

void add_nothing(const std::byte*, std::int64_t*) {}

void add_block(const std::byte* planes, unsigned width, std::int64_t* sums) {
  using Add = void (*)(const std::byte* planes, std::int64_t* sums);
  constexpr Add kByWidth[] = {add_nothing, add_all<1>, add_all<2>, add_all<3>, add_all<4>,
                              add_all<5>,  add_all<6>, add_all<7>, add_all<8>};
  kByWidth[width](planes, sums);
}

TERRACE_AVX2 bool is_least(const std::byte* planes, unsigned width) {
  if (width == 0) return true;
  const std::byte* const top = planes + (width - 1) * kBlock;
  Quads differs{};
  for (std::size_t half = 0; half < kBlock; half += 32) {
    Bytes high, low{};
    load_vector(top + half, high);
    if (width > 1) load_vector(top + half - kBlock, low);
    differs |= reinterpret_cast<Quads>(high ^ (low < 0));
  }
  return any_of(differs) != 0;
}

constexpr BlockFunctions kAvx2{"avx2", pack_block, add_block, is_least};

}  // namespace

const BlockFunctions* avx2_blocks() { return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr; }

#else

const BlockFunctions* avx2_blocks() { return nullptr; }

#endif

}  // namespace terrace::wire
