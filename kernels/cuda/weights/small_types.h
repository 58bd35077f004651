// What a card makes of blocks of Q8_0 and Q4_0: v_c of docs/numerics.md 3.1. Blocks have 32 values, a scale in front,
// and lie at even addresses. Layouts: kernels/cpu/<type>/block.h.
#pragma once

#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/card_rows.h"
#include "kernels/cuda/weights/k_types.h"

namespace terrace::kernels::cuda {

template <class Type>
struct SmallType {
  static constexpr BlockFamily kFamily = BlockFamily::kSmall;
  static constexpr int kValues = 32;
  static constexpr int kXSumValues = 32;

  TERRACE_DEVICE static float scale(const HalfAlignedWords& words) { return f16_value(words.half_at(-2)); }

  // v_c from the sum over code * x and the sum of x.
  TERRACE_DEVICE static float value(float d, std::int32_t sum, const std::uint8_t* x_sum, float dx) {
    if constexpr (Type::kOffset != 0) sum -= Type::kOffset * load_aligned<std::int16_t>(x_sum);
    return (d * dx) * static_cast<float>(sum);
  }

  TERRACE_DEVICE static float value(const std::uint8_t* block, const CardRows& x, std::uint32_t c) {
    const HalfAlignedWords words(block + 2);
    const Words4 a = load4(x.q(0, 32 * c)), b = load4(x.q(0, 32 * c + 16));
    std::int32_t sum = 0;
    TERRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      std::uint32_t first, second;
      Type::codes(words, i, first, second);
      sum = dot4(first, a.w[i], dot4(second, b.w[i], sum));
    }
    return value(scale(words), sum, x.sums(0, c), x.d(0, c));
  }
};

struct Q8_0 : SmallType<Q8_0> {
  static constexpr int kBlockBytes = 34;
  static constexpr int kOffset = 0;

  // Codes of values 4i .. 4i + 3, and of those 16 further.
  TERRACE_DEVICE static void codes(const HalfAlignedWords& words, int i, std::uint32_t& first, std::uint32_t& second) {
    first = words.at(4 * i);
    second = words.at(16 + 4 * i);
  }
};

struct Q4_0 : SmallType<Q4_0> {
  static constexpr int kBlockBytes = 18;
  static constexpr int kOffset = 8;

  TERRACE_DEVICE static void codes(const HalfAlignedWords& words, int i, std::uint32_t& first, std::uint32_t& second) {
    const std::uint32_t nibbles = words.at(4 * i);
    first = nibbles & 0x0f0f0f0fu;
    second = nibbles >> 4 & 0x0f0f0f0fu;
  }
};

}  // namespace terrace::kernels::cuda
