// Chunk values of 16 weight rows and 8 rows of x on the int8 tensor cores: exact integers, so equal to the scalar ones.
//
// A warp multiplies [16, K] codes by [K, 8] values, K = 32 or a group of 16. In the instruction's layout thread t
// holds, with g = t / 4 and i = t % 4: of the weights words i (and 4 + i for K = 32) of rows g and g + 8; of x the same
// words of row g; of the result rows g, g, g + 8, g + 8 and columns 2i, 2i + 1, 2i, 2i + 1. Source: PTX ISA,
// mma.m16n8k16 and mma.m16n8k32 for integers.
#pragma once

#include <cstdint>

#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/k_types.h"
#include "kernels/cuda/weights/small_types.h"

namespace terrace::kernels::cuda {

struct Products {
  std::int32_t v[4];
};

// Weights are unsigned codes, or signed values (Q8_0).
template <bool kSigned>
__device__ __forceinline__ Products mma_32(const std::uint32_t (&w)[4], const std::uint32_t (&x)[2]) {
  Products c;
  if constexpr (kSigned) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(c.v[0]), "=r"(c.v[1]), "=r"(c.v[2]), "=r"(c.v[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "r"(0));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(c.v[0]), "=r"(c.v[1]), "=r"(c.v[2]), "=r"(c.v[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "r"(0));
  }
  return c;
}
__device__ __forceinline__ Products mma_16(std::uint32_t w0, std::uint32_t w1, std::uint32_t x) {
  Products c;
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(c.v[0]), "=r"(c.v[1]), "=r"(c.v[2]), "=r"(c.v[3])
      : "r"(w0), "r"(w1), "r"(x), "r"(0));
  return c;
}

// One block of two weight rows, as this thread meets it, and block c of the rows of x.
struct MmaBlocks {
  const std::uint8_t* w[2];  // of rows g and g + 8
  const CardRows& x;
  std::uint32_t c;

  static __device__ __forceinline__ int g() { return static_cast<int>(threadIdx.x % 32 / 4); }
  static __device__ __forceinline__ int i() { return static_cast<int>(threadIdx.x % 4); }
  // Word i of x's row g, `value` values from the row's begin.
  __device__ __forceinline__ std::uint32_t x_word(std::uint32_t value) const {
    return *reinterpret_cast<const std::uint32_t*>(x.q(g(), value + 4 * i()));
  }
};

// v[2 * row + column] as the results lie: rows g and g + 8, columns 2i and 2i + 1.
template <class Type>
__device__ __forceinline__ void mma_values_with_mins(const MmaBlocks& at, float (&v)[4]) {
  const typename Type::Head heads[2] = {Type::head(at.w[0]), Type::head(at.w[1])};
  std::int32_t first_sum[4] = {}, second_sum[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t first[4], second[4], x_first[2], x_second[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const auto* words = reinterpret_cast<const std::uint32_t*>(at.w[row]) + at.i() + 4 * half;
        const std::uint32_t high = Type::kHasHighBits ? words[4] : 0;
        Type::codes(words[Type::kNibbles / 4 + 8 * k], high, k, first[row + 2 * half], second[row + 2 * half]);
      }
      x_first[half] = at.x_word(256 * at.c + 64 * k + 16 * half);
      x_second[half] = at.x_word(256 * at.c + 64 * k + 32 + 16 * half);
    }
    const Products first_dot = mma_32<false>(first, x_first), second_dot = mma_32<false>(second, x_second);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const std::uint32_t scales = heads[n / 2].scales[k / 2] >> 16 * (k % 2);
      first_sum[n] += byte_of(scales, 0) * first_dot.v[n];
      second_sum[n] += byte_of(scales, 1) * second_dot.v[n];
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int column = 2 * at.i() + n % 2;
    v[n] = Type::value(heads[n / 2], first_sum[n], second_sum[n], at.x.sums(column, 8 * at.c), at.x.d(column, at.c));
  }
}

template <class Type>
__device__ __forceinline__ void mma_values_with_offset(const MmaBlocks& at, float (&v)[4]) {
  const HalfAlignedWords words[2] = {HalfAlignedWords(at.w[0]), HalfAlignedWords(at.w[1])};
  const typename Type::Head heads[2] = {Type::head(words[0]), Type::head(words[1])};
  std::int32_t sum[4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      std::uint32_t codes[2][4];  // [row][k]
#pragma unroll
      for (int row = 0; row < 2; ++row) Type::codes(words[row], h, 16 * e + 4 * at.i(), codes[row]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Products dot = mma_16(codes[0][k], codes[1][k], at.x_word(256 * at.c + 128 * h + 32 * k + 16 * e));
#pragma unroll
        for (int n = 0; n < 4; ++n) sum[n] += heads[n / 2].scale(h, k, e) * dot.v[n];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int column = 2 * at.i() + n % 2;
    v[n] = Type::value(heads[n / 2], sum[n], at.x.sums(column, 16 * at.c), at.x.d(column, at.c));
  }
}

template <class Type>
__device__ __forceinline__ void mma_values_small(const MmaBlocks& at, float (&v)[4]) {
  std::uint32_t codes[4], x[2];
  float scales[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const HalfAlignedWords words(at.w[row] + 2);
    scales[row] = Type::scale(words);
    Type::codes(words, at.i(), codes[row], codes[row + 2]);
    x[row] = at.x_word(32 * at.c + 16 * row);
  }
  const Products sum = mma_32<Type::kOffset == 0>(codes, x);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int column = 2 * at.i() + n % 2;
    v[n] = Type::value(scales[n / 2], sum.v[n], at.x.sums(column, at.c), at.x.d(column, at.c));
  }
}

template <class Type>
__device__ __forceinline__ void mma_values(const MmaBlocks& at, float (&v)[4]) {
  if constexpr (Type::kFamily == BlockFamily::kWithMins) {
    mma_values_with_mins<Type>(at, v);
  } else if constexpr (Type::kFamily == BlockFamily::kWithOffset) {
    mma_values_with_offset<Type>(at, v);
  } else {
    mma_values_small<Type>(at, v);
  }
}

}  // namespace terrace::kernels::cuda
