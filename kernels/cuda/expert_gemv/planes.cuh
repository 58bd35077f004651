// Weights of K-types for the tensor cores, taken apart once for many rows of x.
//
// A weight times the scale of its sub-block has at most 13 bits and a sign: p = 256 * high + low, low unsigned, high
// signed, a byte each. Products with x, summed over a block's 256 values, are then two chains of integer
// multiply-adds, and I_c = 256 * high sum + low sum: no sub-block needs a sum of its own. Low sums stay below 2^23,
// high ones below 2^20, their total below 2^28. A minimum's part M_c is a product of f16: 6-bit minima, and sums of x
// (13 bits) as 64 * high + low. Every product is an integer below 2^18 and every sum below 2^22: exact in the f32 that
// such products are added in.
#pragma once

#include "kernels/cuda/expert_gemv/mma.cuh"

namespace terrace::kernels::cuda {

// One block of rows g and g + 8, in the instruction's layout (mma.cuh), per 32 values.
template <class Type>
struct Planes {
  static constexpr bool kHasMins = Type::kFamily == BlockFamily::kWithMins;
  std::uint32_t low[8][4], high[8][4];
  float d[2];
  float dmin[2];            // where the type has minima
  std::uint32_t mins[2];    // f16 pair: of sub-blocks 2i and 2i + 1
  std::uint32_t mins64[2];  // 64 times these
};

// Four codes times a scale, each plus `addend` (both halves of it), as two bytes each.
__device__ __forceinline__ void split_products(std::uint32_t codes, std::uint32_t scale, std::uint32_t addend,
                                               std::uint32_t& low, std::uint32_t& high) {
  const std::uint32_t even = (codes & 0x00ff00ffu) * scale + addend;
  const std::uint32_t odd = (codes >> 8 & 0x00ff00ffu) * scale + addend;
  low = __byte_perm(even, odd, 0x6240);
  high = __byte_perm(even, odd, 0x7351);
}

__device__ __forceinline__ std::uint32_t half_bits(__half2 pair) {
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
__device__ __forceinline__ __half2 half_pair(std::uint32_t bits) {
  __half2 pair;
  memcpy(&pair, &bits, sizeof pair);
  return pair;
}
// Two f16 whose bits are 0x6400 | n, n < 1024, stand for 1024 + n: less `base` (of the same form).
__device__ __forceinline__ std::uint32_t small_integers(std::uint32_t bits, std::uint32_t base) {
  return half_bits(__hsub2(half_pair(bits), half_pair(base)));
}

// w: the block in shared memory, of rows g and g + 8.
template <class Type>
__device__ __forceinline__ void unpack_with_mins(const std::uint8_t* const (&w)[2], Planes<Type>& planes) {
  const int i = MmaBlocks::i();
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const typename Type::Head head = Type::head(w[row]);
    planes.d[row] = head.d;
    planes.dmin[row] = head.dmin;
    // Bytes 2i and 2i + 1 of the minima, as 0x6400 | byte each.
    const std::uint32_t pair = (i < 2 ? head.mins[0] : head.mins[1]) >> 16 * (i % 2);
    planes.mins[row] = small_integers(__byte_perm(pair, 0x64646464u, 0x4140), 0x64006400u);
    planes.mins64[row] = half_bits(__hmul2(half_pair(planes.mins[row]), half_pair(0x54005400u)));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(w[row]) + i + 4 * half;
      const std::uint32_t high_bits = Type::kHasHighBits ? words[4] : 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        std::uint32_t first, second;
        Type::codes(words[Type::kNibbles / 4 + 8 * k], high_bits, k, first, second);
        const std::uint32_t scales = head.scales[k / 2] >> 16 * (k % 2);
        const int at = row + 2 * half;
        split_products(first, scales & 0xff, 0, planes.low[2 * k][at], planes.high[2 * k][at]);
        split_products(second >> Type::kSecondShift, scales >> 8 & 0xff, 0, planes.low[2 * k + 1][at],
                       planes.high[2 * k + 1][at]);
      }
    }
  }
}

template <class Type>
__device__ __forceinline__ void unpack_with_offset(const std::uint8_t* const (&w)[2], Planes<Type>& planes) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const HalfAlignedWords words(w[row]);
    const typename Type::Head head = Type::head(words);
    planes.d[row] = head.d;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        std::uint32_t codes[4];
        Type::codes(words, h, 16 * e + 4 * MmaBlocks::i(), codes);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const auto scale = static_cast<std::uint32_t>(head.scale(h, k, e));
          // 2^15 more in the lower half, so that it does not borrow from the upper one: taken out of its sign again.
          const std::uint32_t addend = 0x8000u - Type::kOffset * scale * 0x00010001u;
          const int at = row + 2 * e;
          split_products(codes[k], scale, addend, planes.low[4 * h + k][at], planes.high[4 * h + k][at]);
          planes.high[4 * h + k][at] ^= 0x00008080u;
        }
      }
  }
}

template <class Type>
__device__ __forceinline__ void unpack(const std::uint8_t* const (&w)[2], Planes<Type>& planes) {
  if constexpr (Planes<Type>::kHasMins) {
    unpack_with_mins<Type>(w, planes);
  } else {
    unpack_with_offset<Type>(w, planes);
  }
}

// The sums of x of sub-blocks 2i and 2i + 1 (int16 each) as f16: the low six bits, and the rest / 64.
__device__ __forceinline__ void split_sums(std::uint32_t sums, std::uint32_t& low, std::uint32_t& high) {
  low = small_integers((sums & 0x003f003fu) | 0x64006400u, 0x64006400u);
  high = small_integers((sums >> 6 & 0x007f007fu) ^ 0x64406440u, 0x64406440u);
}

}  // namespace terrace::kernels::cuda
