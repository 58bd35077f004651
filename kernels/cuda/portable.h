// What device code and the host's tests of it share: the few instructions that differ, under one name. A header that
// uses only these compiles with nvcc and with the C++ compiler, so its arithmetic is tested where there is no card.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/float_bits.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define TERRACE_DEVICE __host__ __device__ __forceinline__
#define TERRACE_UNROLL _Pragma("unroll")
#else
#define TERRACE_DEVICE inline
#define TERRACE_UNROLL
#endif

namespace terrace::kernels::cuda {

// sum + the products of four bytes each, x signed, w signed or unsigned.
TERRACE_DEVICE std::int32_t dot4(std::uint32_t w, std::uint32_t x, std::int32_t sum) {
#ifdef __CUDA_ARCH__
  return __dp4a(static_cast<int>(w), static_cast<int>(x), sum);
#else
  for (int i = 0; i < 4; ++i) sum += static_cast<std::int8_t>(w >> 8 * i) * static_cast<std::int8_t>(x >> 8 * i);
  return sum;
#endif
}
TERRACE_DEVICE std::int32_t dot4_unsigned(std::uint32_t w, std::uint32_t x, std::int32_t sum) {
#ifdef __CUDA_ARCH__
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w), "r"(x));
  return sum;
#else
  for (int i = 0; i < 4; ++i) sum += static_cast<std::uint8_t>(w >> 8 * i) * static_cast<std::int8_t>(x >> 8 * i);
  return sum;
#endif
}

// sum + pairs[0] * bytes[first] + pairs[1] * bytes[first + 1]: two int16 and two of four int8, all signed.
TERRACE_DEVICE std::int32_t dot2(std::uint32_t pairs, std::uint32_t bytes, bool upper_bytes, std::int32_t sum) {
#ifdef __CUDA_ARCH__
  return upper_bytes ? __dp2a_hi(static_cast<int>(pairs), static_cast<int>(bytes), sum)
                     : __dp2a_lo(static_cast<int>(pairs), static_cast<int>(bytes), sum);
#else
  bytes >>= upper_bytes ? 16 : 0;
  for (int i = 0; i < 2; ++i)
    sum += static_cast<std::int16_t>(pairs >> 16 * i) * static_cast<std::int8_t>(bytes >> 8 * i);
  return sum;
#endif
}

TERRACE_DEVICE float f16_value(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
#else
  return f16_to_f32(static_cast<std::uint16_t>(bits));
#endif
}

TERRACE_DEVICE float bits_to_float(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return float_of_bits(bits);
#endif
}

TERRACE_DEVICE float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// A T from a place that is aligned for it. (Copied byte by byte the compiler would not know that it is.)
template <class T>
TERRACE_DEVICE T load_aligned(const std::uint8_t* at) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const T*>(at);
#else
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
#endif
}

// Four words from a 16-byte aligned place: one load on the card.
struct alignas(16) Words4 {
  std::uint32_t w[4];
};
TERRACE_DEVICE Words4 load4(const void* at) {
#ifdef __CUDA_ARCH__
  const uint4 v = *static_cast<const uint4*>(at);
  return {{v.x, v.y, v.z, v.w}};
#else
  Words4 words;
  std::memcpy(&words, at, sizeof words);
  return words;
#endif
}

// Reads words of a block that lies at any even address: aligned words, two of them joined where the block begins
// between. Reads at most three bytes behind a word's last.
class HalfAlignedWords {
 public:
  TERRACE_DEVICE explicit HalfAlignedWords(const std::uint8_t* block)
      : aligned_(block - (reinterpret_cast<std::uintptr_t>(block) & 2)),
        selector_(reinterpret_cast<std::uintptr_t>(block) & 2 ? 0x5432 : 0x3210) {}

  // The word at byte `offset`, a multiple of 4 from the block's begin.
  TERRACE_DEVICE std::uint32_t at(int offset) const {
#ifdef __CUDA_ARCH__
    const auto* words = reinterpret_cast<const std::uint32_t*>(aligned_ + offset);
    return __byte_perm(words[0], words[1], selector_);
#else
    std::uint32_t word;
    std::memcpy(&word, aligned_ + offset + (selector_ == 0x5432 ? 2 : 0), sizeof word);
    return word;
#endif
  }
  // The 16 bits at byte `offset`, an even number from the block's begin.
  TERRACE_DEVICE std::uint32_t half_at(int offset) const {
    return load_aligned<std::uint16_t>(aligned_ + offset + (selector_ == 0x5432 ? 2 : 0));
  }

 private:
  const std::uint8_t* aligned_;
  std::uint32_t selector_;
};

// Byte i of a word, unsigned or signed.
TERRACE_DEVICE std::int32_t byte_of(std::uint32_t word, int i) {
  return static_cast<std::int32_t>(word >> 8 * i & 0xff);
}
TERRACE_DEVICE std::int32_t signed_byte_of(std::uint32_t word, int i) {
  return static_cast<std::int8_t>(word >> 8 * i);
}

}  // namespace terrace::kernels::cuda
