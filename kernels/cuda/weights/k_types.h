// What a card makes of blocks of Q3_K, Q4_K, Q5_K, Q6_K: v_c of docs/numerics.md 3.1 for one thread with a whole block
// and one row of x, and the parts of that which the tensor cores' kernel uses. Layouts: kernels/cpu/<type>/block.h.
//
// Sums: with codes below 2^6, scales below 2^7 and x below 2^7, 256 products stay below 2^28, 16 times Q4_K's below
// 2^29.
#pragma once

#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {

enum class BlockFamily : std::uint8_t { kWithMins, kWithOffset, kSmall };

// Q4_K and Q5_K: eight sub-blocks of 32 values with a scale and a min each. Blocks lie at multiples of 16 bytes.
template <class Type>
struct KTypeWithMins {
  static constexpr BlockFamily kFamily = BlockFamily::kWithMins;
  static constexpr int kValues = 256;
  static constexpr int kXSumValues = 32;

  struct Head {
    std::uint32_t scales[2];  // bytes: of sub-blocks 0 .. 3 and 4 .. 7
    std::uint32_t mins[2];
    float d, dmin;
  };
  // d, dmin, 12 bytes of scales and mins: kernels/cpu/k_scales.h
  TERRACE_DEVICE static Head head(const std::uint8_t* block) {
    const Words4 words = load4(block);
    const std::uint32_t low = words.w[1], middle = words.w[2], high = words.w[3];
    return {{low & 0x3f3f3f3fu, (high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u)},
            {middle & 0x3f3f3f3fu, (high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u)},
            f16_value(words.w[0] & 0xffff),
            f16_value(words.w[0] >> 16)};
  }

  // v_c from sums over the even sub-blocks (`first`) and the odd ones (`second`, whose codes are 2^kSecondShift times
  // what they stand for), and the eight sums of x at x_sums.
  TERRACE_DEVICE static float value(const Head& head, std::int32_t first, std::int32_t second,
                                    const std::uint8_t* x_sums, float dx) {
    const Words4 s = load4(x_sums);
    std::int32_t min_sum = dot2(s.w[0], head.mins[0], false, 0);
    min_sum = dot2(s.w[1], head.mins[0], true, min_sum);
    min_sum = dot2(s.w[2], head.mins[1], false, min_sum);
    min_sum = dot2(s.w[3], head.mins[1], true, min_sum);
    const float total = static_cast<float>(first + (second >> Type::kSecondShift));
    return fused(head.d * dx, total, -((head.dmin * dx) * static_cast<float>(min_sum)));
  }

  // The whole of v_c, with row 0 of x.
  TERRACE_DEVICE static float value(const std::uint8_t* block, const CardRows& x, std::uint32_t c) {
    const Head own = head(block);
    std::int32_t first_sum = 0, second_sum = 0;
    TERRACE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const std::uint8_t* q = x.q(0, 256 * c + 64 * k);
      std::int32_t first_dot = 0, second_dot = 0;
      TERRACE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Words4 nibbles = load4(block + Type::kNibbles + 32 * k + 16 * half);
        const Words4 high = Type::kHasHighBits ? load4(block + 16 + 16 * half) : Words4{};
        const Words4 x_first = load4(q + 16 * half), x_second = load4(q + 32 + 16 * half);
        TERRACE_UNROLL
        for (int i = 0; i < 4; ++i) {
          std::uint32_t first, second;
          Type::codes(nibbles.w[i], high.w[i], k, first, second);
          first_dot = dot4_unsigned(first, x_first.w[i], first_dot);
          second_dot = dot4_unsigned(second, x_second.w[i], second_dot);
        }
      }
      const std::uint32_t scales = own.scales[k / 2] >> 16 * (k % 2);
      first_sum += byte_of(scales, 0) * first_dot;
      second_sum += byte_of(scales, 1) * second_dot;
    }
    return value(own, first_sum, second_sum, x.sums(0, 8 * c), x.d(0, c));
  }
};

struct Q4K : KTypeWithMins<Q4K> {
  static constexpr int kBlockBytes = 144;
  static constexpr int kNibbles = 16;
  static constexpr bool kHasHighBits = false;
  static constexpr int kSecondShift = 4;  // high nibbles are used where they lie

  // Codes of four values of sub-blocks 2k and 2k + 1.
  TERRACE_DEVICE static void codes(std::uint32_t nibbles, std::uint32_t, int, std::uint32_t& first,
                                   std::uint32_t& second) {
    first = nibbles & 0x0f0f0f0fu;
    second = nibbles & 0xf0f0f0f0u;
  }
};

struct Q5K : KTypeWithMins<Q5K> {
  static constexpr int kBlockBytes = 176;
  static constexpr int kNibbles = 48;
  static constexpr bool kHasHighBits = true;
  static constexpr int kSecondShift = 0;

  TERRACE_DEVICE static void codes(std::uint32_t nibbles, std::uint32_t high, int k, std::uint32_t& first,
                                   std::uint32_t& second) {
    first = (nibbles & 0x0f0f0f0fu) | (high >> 2 * k & 0x01010101u) << 4;
    second = (nibbles >> 4 & 0x0f0f0f0fu) | (high >> (2 * k + 1) & 0x01010101u) << 4;
  }
};

// Q3_K and Q6_K: sixteen groups of 16 values, each with a scale of either sign; a weight is its code less kOffset.
// Value 128 * h + 32 * k + 16 * e + i (h, e < 2; k < 4) is of group 8 * h + 2 * k + e. Blocks lie at even addresses.
template <class Type>
struct KTypeWithOffset {
  static constexpr BlockFamily kFamily = BlockFamily::kWithOffset;
  static constexpr int kValues = 256;
  static constexpr int kXSumValues = 16;

  struct Head {
    std::uint32_t scales[4];  // int8: of groups 4i .. 4i + 3
    float d;
    TERRACE_DEVICE std::int32_t scale(int h, int k, int e) const {
      return signed_byte_of(scales[2 * h + k / 2], 2 * (k % 2) + e);
    }
  };
  TERRACE_DEVICE static Head head(const HalfAlignedWords& words) {
    Head head;
    Type::unpack_scales(words, head.scales);
    head.d = f16_value(words.half_at(Type::kScaleOffset));
    return head;
  }

  // v_c from the sum over scale * code * x and the sixteen sums of x at x_sums.
  TERRACE_DEVICE static float value(const Head& head, std::int32_t sum, const std::uint8_t* x_sums, float dx) {
    std::int32_t offset_sum = 0;
    TERRACE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Words4 s = load4(x_sums + 16 * half);
      TERRACE_UNROLL
      for (int i = 0; i < 4; ++i) offset_sum = dot2(s.w[i], head.scales[2 * half + i / 2], i % 2 == 1, offset_sum);
    }
    return (head.d * dx) * static_cast<float>(sum - Type::kOffset * offset_sum);
  }

  TERRACE_DEVICE static float value(const std::uint8_t* block, const CardRows& x, std::uint32_t c) {
    const HalfAlignedWords words(block);
    const Head own = head(words);
    std::int32_t sum = 0;
    TERRACE_UNROLL
    for (int h = 0; h < 2; ++h) {
      TERRACE_UNROLL
      for (int e = 0; e < 2; ++e) {
        std::uint32_t codes[4][4];  // [word][k]
        TERRACE_UNROLL
        for (int i = 0; i < 4; ++i) Type::codes(words, h, 16 * e + 4 * i, codes[i]);
        TERRACE_UNROLL
        for (int k = 0; k < 4; ++k) {
          const Words4 q = load4(x.q(0, 256 * c + 128 * h + 32 * k + 16 * e));
          std::int32_t dot = 0;
          TERRACE_UNROLL
          for (int i = 0; i < 4; ++i) dot = dot4(codes[i][k], q.w[i], dot);
          sum += own.scale(h, k, e) * dot;
        }
      }
    }
    return value(own, sum, x.sums(0, 16 * c), x.d(0, c));
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
  // Codes of four values of each k, from byte `at` of half h's 32-byte parts.
  TERRACE_DEVICE static void codes(const HalfAlignedWords& words, int h, int at, std::uint32_t (&codes)[4]) {
    const std::uint32_t even = words.at(64 * h + at), odd = words.at(64 * h + 32 + at);
    const std::uint32_t high = words.at(128 + 32 * h + at);
    codes[0] = (even & 0x0f0f0f0fu) | (high << 4 & 0x30303030u);
    codes[1] = (odd & 0x0f0f0f0fu) | (high << 2 & 0x30303030u);
    codes[2] = (even >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u);
    codes[3] = (odd >> 4 & 0x0f0f0f0fu) | (high >> 2 & 0x30303030u);
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
  TERRACE_DEVICE static void codes(const HalfAlignedWords& words, int h, int at, std::uint32_t (&codes)[4]) {
    const std::uint32_t low = words.at(32 + 32 * h + at), high = words.at(at) >> 4 * h;
    codes[0] = (low & 0x03030303u) | (high << 2 & 0x04040404u);
    codes[1] = (low >> 2 & 0x03030303u) | (high << 1 & 0x04040404u);
    codes[2] = (low >> 4 & 0x03030303u) | (high & 0x04040404u);
    codes[3] = (low >> 6 & 0x03030303u) | (high >> 1 & 0x04040404u);
  }
};

}  // namespace terrace::kernels::cuda
