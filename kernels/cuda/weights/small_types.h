// What one thread makes of one block of Q8_0 or Q4_0 and the x blocks of J rows: v_c of docs/numerics.md 3.1. Blocks
// have 32 values and lie at even addresses. Layouts: kernels/cpu/<type>/block.h.
#pragma once

#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/x_rows.h"

namespace terrace::kernels::cuda {

struct Q8_0 {
  static constexpr int kBlockBytes = 34;
  static constexpr int kValues = 32;
  static constexpr int kXSumValues = 32;

  template <int J>
  TERRACE_DEVICE static void values(const std::uint8_t* block, const XRows& x, std::uint32_t c, float (&v)[J]) {
    const HalfAlignedWords words(block + 2);
    std::uint32_t q[8];
    TERRACE_UNROLL
    for (int i = 0; i < 8; ++i) q[i] = words.at(4 * i);
    const float d = f16_value(words.half_at(-2));
    TERRACE_UNROLL
    for (int j = 0; j < J; ++j) {
      const Words4 a = load4(x.q(j, 32 * c)), b = load4(x.q(j, 32 * c + 16));
      std::int32_t sum = 0;
      TERRACE_UNROLL
      for (int i = 0; i < 4; ++i) sum = dot4(q[i], a.w[i], dot4(q[4 + i], b.w[i], sum));
      v[j] = (d * x.d(j, c)) * static_cast<float>(sum);
    }
  }
};

struct Q4_0 {
  static constexpr int kBlockBytes = 18;
  static constexpr int kValues = 32;
  static constexpr int kXSumValues = 32;

  template <int J>
  TERRACE_DEVICE static void values(const std::uint8_t* block, const XRows& x, std::uint32_t c, float (&v)[J]) {
    const HalfAlignedWords words(block + 2);
    std::uint32_t nibbles[4];
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i) nibbles[i] = words.at(4 * i);
    const float d = f16_value(words.half_at(-2));
    TERRACE_UNROLL
    for (int j = 0; j < J; ++j) {
      const Words4 a = load4(x.q(j, 32 * c)), b = load4(x.q(j, 32 * c + 16));
      std::int16_t x_sum;
      std::memcpy(&x_sum, x.sums(j, c), sizeof x_sum);
      std::int32_t sum = -8 * x_sum;
      TERRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        sum = dot4(nibbles[i] & 0x0f0f0f0fu, a.w[i], sum);
        sum = dot4(nibbles[i] >> 4 & 0x0f0f0f0fu, b.w[i], sum);
      }
      v[j] = (d * x.d(j, c)) * static_cast<float>(sum);
    }
  }
};

}  // namespace terrace::kernels::cuda
