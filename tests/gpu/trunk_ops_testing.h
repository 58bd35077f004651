// What the tests of a step's fused operations share: rows in each class, and a choice of experts with its groups.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/trunk_ops/trunk_ops.h"
#include "kernels/cuda/weights/card_rows.h"
#include "tests/gpu/card_test.h"

namespace terrace::test {

using kernels::cuda::CardSlab;
using kernels::cuda::ChooseArgs;
using kernels::cuda::GemvGroup;

inline constexpr unsigned kTrunkOpsSeed = 4177;
inline constexpr ActivationClass kClasses[] = {ActivationClass::kF32, ActivationClass::kA8x32,
                                               ActivationClass::kA8x256};

class CardTrunkOps : public CardTest {
 protected:
  std::vector<float> random(std::size_t n, float scale = 1.0f) { return bell_values(rng_, n, scale); }
  std::uint32_t* no_failures(std::size_t n) { return upload(std::vector<std::uint32_t>(n, kernels::cuda::kNoFailure)); }
  static std::size_t stride(ActivationClass activation, std::uint32_t cols) {
    return kernels::cuda::card_row_layout(block_values(activation), cols).bytes;
  }
  // The bytes that kernels read of card rows made of x [n_rows, cols].
  std::vector<std::byte> card_rows(ActivationClass activation, const float* x, std::uint32_t n_rows,
                                   std::uint32_t cols) {
    std::byte* rows = zeros(n_rows * stride(activation, cols));
    EXPECT_TRUE(
        kernels::cuda::quantize_card_rows(stream(), {activation, x, cols, n_rows, cols, rows, stride(activation, cols)})
            .ok());
    return download(rows, n_rows * stride(activation, cols));
  }
  // In 16 lanes (docs/numerics.md 3.2).
  static float dot_in_lanes(const float* w, const std::vector<float>& x) {
    float lanes[16] = {};
    for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] = std::fma(w[i], x[i], lanes[i % 16]);
    for (std::size_t half = 8; half >= 1; half /= 2)
      for (std::size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0];
  }
  // A choice of top_k of slabs.size() experts that makes its pairs' groups too; logits: on the card [n_rows, experts].
  ChooseArgs choice_with_pairs(const float* logits, std::uint32_t n_rows, std::uint32_t top_k,
                               const std::vector<CardSlab>& slabs) {
    ChooseArgs args;
    args.logits = logits;
    args.n_rows = n_rows;
    args.n_experts = static_cast<std::uint32_t>(slabs.size());
    args.top_k = top_k;
    const std::uint32_t n_pairs = n_rows * top_k, n_groups = std::min(n_pairs, args.n_experts);
    args.ids = room<std::uint16_t>(n_pairs);
    args.weights = room<float>(n_pairs);
    args.failures = no_failures(n_rows);
    args.slabs = upload(slabs);
    args.gate_up = room<GemvGroup>(2 * n_groups);
    args.down = room<GemvGroup>(n_groups);
    args.x_rows = room<std::uint32_t>(2 * n_pairs);
    args.slots = room<std::int32_t>(n_pairs);
    return args;
  }
  // What lies between the parts of a row is not written.
  std::byte* zeros(std::size_t n) { return upload(std::vector<std::byte>(n)); }

  std::mt19937 rng_{kTrunkOpsSeed};
};

}  // namespace terrace::test
