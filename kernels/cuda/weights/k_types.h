// What one thread makes of one block of Q3_K, Q4_K, Q5_K, Q6_K and the x blocks of J rows: v_c of docs/numerics.md 3.1.
// Block layouts: kernels/cpu/<type>/block.h.
//
// A thread takes a whole block, so that nothing is summed across threads; weights are unpacked once for all rows.
// Sums: with codes below 2^6, scales below 2^7 and x below 2^7, 256 products stay below 2^28, 16 times Q4_K's below
// 2^29.
#pragma once

#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/x_rows.h"

namespace terrace::kernels::cuda {

// Q4_K and Q5_K: eight sub-blocks of 32 values with a scale and a min each. Blocks lie at multiples of 16 bytes.
template <class Type>
struct KTypeWithMins {
  static constexpr int kValues = 256;
  static constexpr int kXSumValues = 32;

  template <int J>
  TERRACE_DEVICE static void values(const std::uint8_t* block, const XRows& x, std::uint32_t c, float (&v)[J]) {
    const Words4 head = load4(block);  // d, dmin, 12 bytes of scales and mins: kernels/cpu/k_scales.h
    const std::uint32_t low = head.w[1], middle = head.w[2], high = head.w[3];
    const std::uint32_t scales[2] = {low & 0x3f3f3f3fu, (high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u)};
    const std::uint32_t mins[2] = {middle & 0x3f3f3f3fu, (high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u)};
    std::int32_t sum[J] = {}, sum_of_second[J] = {};
    TERRACE_UNROLL
    for (int k = 0; k < 4; ++k) add<J>(block, k, scales[k / 2] >> 16 * (k % 2), x, c, sum, sum_of_second);
    const float d = f16_value(head.w[0] & 0xffff), dmin = f16_value(head.w[0] >> 16);
    TERRACE_UNROLL
    for (int j = 0; j < J; ++j) {
      const Words4 s = load4(x.sums(j, 8 * c));
      std::int32_t min_sum = dot2(s.w[0], mins[0], false, 0);
      min_sum = dot2(s.w[1], mins[0], true, min_sum);
      min_sum = dot2(s.w[2], mins[1], false, min_sum);
      min_sum = dot2(s.w[3], mins[1], true, min_sum);
      const float dx = x.d(j, c);
      const float total = static_cast<float>(sum[j] + (sum_of_second[j] >> Type::kSecondShift));
      v[j] = fused(d * dx, total, -((dmin * dx) * static_cast<float>(min_sum)));
    }
  }

 private:
  // Sub-blocks 2k and 2k + 1: their scales are bytes 0 and 1 of `scales`. The second's codes are 2^kSecondShift times
  // what they stand for.
  template <int J>
  TERRACE_DEVICE static void add(const std::uint8_t* block, int k, std::uint32_t scales, const XRows& x,
                                 std::uint32_t c, std::int32_t (&sum)[J], std::int32_t (&sum_of_second)[J]) {
    std::uint32_t first[8], second[8];
    Type::codes(block, k, first, second);
    TERRACE_UNROLL
    for (int j = 0; j < J; ++j) {
      const std::uint8_t* q = x.q(j, 256 * c + 64 * k);
      sum[j] += byte_of(scales, 0) * dot32(first, q);
      sum_of_second[j] += byte_of(scales, 1) * dot32(second, q + 32);
    }
  }
  TERRACE_DEVICE static std::int32_t dot32(const std::uint32_t (&codes)[8], const std::uint8_t* q) {
    const Words4 a = load4(q), b = load4(q + 16);
    std::int32_t dot = 0;
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i) dot = dot4_unsigned(codes[i], a.w[i], dot);
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i) dot = dot4_unsigned(codes[4 + i], b.w[i], dot);
    return dot;
  }
};

struct Q4K : KTypeWithMins<Q4K> {
  static constexpr int kBlockBytes = 144;
  static constexpr int kSecondShift = 4;  // high nibbles are used where they lie

  TERRACE_DEVICE static void codes(const std::uint8_t* block, int k, std::uint32_t (&first)[8],
                                   std::uint32_t (&second)[8]) {
    TERRACE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Words4 nibbles = load4(block + 16 + 32 * k + 16 * half);
      TERRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        first[4 * half + i] = nibbles.w[i] & 0x0f0f0f0fu;
        second[4 * half + i] = nibbles.w[i] & 0xf0f0f0f0u;
      }
    }
  }
};

struct Q5K : KTypeWithMins<Q5K> {
  static constexpr int kBlockBytes = 176;
  static constexpr int kSecondShift = 0;

  TERRACE_DEVICE static void codes(const std::uint8_t* block, int k, std::uint32_t (&first)[8],
                                   std::uint32_t (&second)[8]) {
    TERRACE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Words4 high = load4(block + 16 + 16 * half);
      const Words4 nibbles = load4(block + 48 + 32 * k + 16 * half);
      TERRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        first[4 * half + i] = (nibbles.w[i] & 0x0f0f0f0fu) | (high.w[i] >> 2 * k & 0x01010101u) << 4;
        second[4 * half + i] = (nibbles.w[i] >> 4 & 0x0f0f0f0fu) | (high.w[i] >> (2 * k + 1) & 0x01010101u) << 4;
      }
    }
  }
};

// Q3_K and Q6_K: sixteen groups of 16 values, each with a scale of either sign; a weight is its code less kOffset.
// Value 128 * h + 32 * k + 16 * e + i (h, e < 2; k < 4) is of group 8 * h + 2 * k + e. Blocks lie at even addresses.
template <class Type>
struct KTypeWithOffset {
  static constexpr int kValues = 256;
  static constexpr int kXSumValues = 16;

  template <int J>
  TERRACE_DEVICE static void values(const std::uint8_t* block, const XRows& x, std::uint32_t c, float (&v)[J]) {
    const HalfAlignedWords words(block);
    std::uint32_t scales[4];  // int8, of groups 4i .. 4i + 3
    Type::unpack_scales(words, scales);
    std::int32_t sum[J] = {};
    TERRACE_UNROLL
    for (int h = 0; h < 2; ++h) {
      TERRACE_UNROLL
      for (int e = 0; e < 2; ++e) add<J>(words, h, e, scales, x, c, sum);
    }
    const float d = f16_value(words.half_at(Type::kScaleOffset));
    TERRACE_UNROLL
    for (int j = 0; j < J; ++j) {
      std::int32_t offset_sum = 0;
      TERRACE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Words4 s = load4(x.sums(j, 16 * c + 8 * half));
        TERRACE_UNROLL
        for (int i = 0; i < 4; ++i) offset_sum = dot2(s.w[i], scales[2 * half + i / 2], i % 2 == 1, offset_sum);
      }
      v[j] = (d * x.d(j, c)) * static_cast<float>(sum[j] - Type::kOffset * offset_sum);
    }
  }

 private:
  template <int J>
  TERRACE_DEVICE static void add(const HalfAlignedWords& words, int h, int e, const std::uint32_t (&scales)[4],
                                 const XRows& x, std::uint32_t c, std::int32_t (&sum)[J]) {
    std::uint32_t codes[4][4];  // [k][word]
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i)
      Type::codes(words, h, 16 * e + 4 * i, codes[0][i], codes[1][i], codes[2][i], codes[3][i]);
    TERRACE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const std::int32_t scale = signed_byte_of(scales[2 * h + k / 2], 2 * (k % 2) + e);
      TERRACE_UNROLL
      for (int j = 0; j < J; ++j) {
        const Words4 q = load4(x.q(j, 256 * c + 128 * h + 32 * k + 16 * e));
        std::int32_t dot = 0;
        TERRACE_UNROLL
        for (int i = 0; i < 4; ++i) dot = dot4(codes[k][i], q.w[i], dot);
        sum[j] += scale * dot;
      }
    }
  }
};

struct Q6K : KTypeWithOffset<Q6K> {
  static constexpr int kBlockBytes = 210;
  static constexpr int kOffset = 32;
  static constexpr int kScaleOffset = 208;

  TERRACE_DEVICE static void unpack_scales(const HalfAlignedWords& words, std::uint32_t (&scales)[4]) {
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i) scales[i] = words.at(192 + 4 * i);
  }
  // Four values of each k, from byte `at` of the 32-byte parts.
  TERRACE_DEVICE static void codes(const HalfAlignedWords& words, int h, int at, std::uint32_t& k0, std::uint32_t& k1,
                                   std::uint32_t& k2, std::uint32_t& k3) {
    const std::uint32_t even = words.at(64 * h + at), odd = words.at(64 * h + 32 + at),
                        high = words.at(128 + 32 * h + at);
    k0 = (even & 0x0f0f0f0fu) | (high << 4 & 0x30303030u);
    k1 = (odd & 0x0f0f0f0fu) | (high << 2 & 0x30303030u);
    k2 = (even >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u);
    k3 = (odd >> 4 & 0x0f0f0f0fu) | (high >> 2 & 0x30303030u);
  }
};

struct Q3K : KTypeWithOffset<Q3K> {
  static constexpr int kBlockBytes = 110;
  static constexpr int kOffset = 4;
  static constexpr int kScaleOffset = 108;

  // Six bits each, 32 more than they stand for. With the top bit set no subtraction borrows from the next byte.
  TERRACE_DEVICE static void unpack_scales(const HalfAlignedWords& words, std::uint32_t (&scales)[4]) {
    const std::uint32_t low[2] = {words.at(96), words.at(100)};
    const std::uint32_t high = words.at(104);
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t code = (low[i % 2] >> 4 * (i / 2) & 0x0f0f0f0fu) | (high >> 2 * i & 0x03030303u) << 4;
      scales[i] = ((code | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
    }
  }
  TERRACE_DEVICE static void codes(const HalfAlignedWords& words, int h, int at, std::uint32_t& k0, std::uint32_t& k1,
                                   std::uint32_t& k2, std::uint32_t& k3) {
    const std::uint32_t low = words.at(32 + 32 * h + at), high = words.at(at) >> 4 * h;
    k0 = (low & 0x03030303u) | (high << 2 & 0x04040404u);
    k1 = (low >> 2 & 0x03030303u) | (high << 1 & 0x04040404u);
    k2 = (low >> 4 & 0x03030303u) | (high & 0x04040404u);
    k3 = (low >> 6 & 0x03030303u) | (high >> 1 & 0x04040404u);
  }
};

}  // namespace terrace::kernels::cuda
