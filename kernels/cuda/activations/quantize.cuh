// Quantising on a card, for the kernels that make rows and for those that make rows of what they have just computed. A
// block is taken by the lanes of a part of a warp, a word of four values (or two) to a lane.
#pragma once

#include "kernels/cpu/activations/block.h"
#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {

template <int kBlockValues>
struct BlockLanes {
  static constexpr int kValues = kBlockValues;
  static constexpr int kWords = kValues == 256 ? 2 : 1;  // of a lane: words lane and lane + kLanesOfBlock
  static constexpr int kLanesOfBlock = kValues / 4 / kWords;
};

// One block as the lanes hold it.
template <class S>
struct LaneWords {
  std::uint32_t word[S::kWords];
  float d;
};

__device__ __forceinline__ std::uint32_t pack(const float (&x)[4], float inverse) {
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float q = fminf(fmaxf(rintf(x[i] * inverse), -127.0f), 127.0f);
    word |= (static_cast<std::uint32_t>(static_cast<std::int32_t>(q)) & 0xff) << 8 * i;
  }
  return word;
}

template <class S>
__device__ LaneWords<S> quantize(const float* x, std::uint32_t lane, bool valid) {
  float values[S::kWords][4];
  float amax = 0.0f;
#pragma unroll
  for (int w = 0; w < S::kWords; ++w)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[w][i] = valid ? x[4 * (lane + S::kLanesOfBlock * w) + i] : 0.0f;
      amax = fmaxf(amax, fabsf(values[w][i]));
    }
#pragma unroll
  for (int apart = 1; apart < S::kLanesOfBlock; apart *= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, apart));
  LaneWords<S> block{};
  if (amax < kSmallestAmax) return block;
  block.d = amax / 127.0f;
  const float inverse = 127.0f / amax;
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) block.word[w] = pack(values[w], inverse);
  return block;
}

template <class S>
__device__ void write_card(const LaneWords<S>& words, std::byte* row, std::uint32_t cols, std::uint32_t block,
                           std::uint32_t lane, bool valid) {
  const CardRowLayout at = card_row_layout(S::kValues, cols);
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) {
    std::int32_t sum16 = dot4(words.word[w], 0x01010101u, 0);
    sum16 += __shfl_xor_sync(~0u, sum16, 1);
    sum16 += __shfl_xor_sync(~0u, sum16, 2);
    const std::int32_t sum32 = sum16 + __shfl_xor_sync(~0u, sum16, 4);
    if (!valid) continue;
    const std::uint32_t i = block * (S::kValues / 4) + lane + S::kLanesOfBlock * w;  // word of the row
    reinterpret_cast<std::uint32_t*>(row)[i] = words.word[w];
    if (i % 4 == 0) reinterpret_cast<std::int16_t*>(row + at.sums16)[i / 4] = static_cast<std::int16_t>(sum16);
    if (i % 8 == 0) reinterpret_cast<std::int16_t*>(row + at.sums32)[i / 8] = static_cast<std::int16_t>(sum32);
  }
  if (valid && lane == 0) reinterpret_cast<float*>(row + at.d)[block] = words.d;
}

// Blocks first_block .. first_block + n_blocks - 1 of a card row from `values`, those of the first block on. All
// threads of the thread block, a multiple of 32, take part.
template <class S>
__device__ void write_card_blocks(const float* values, std::uint32_t first_block, std::uint32_t n_blocks,
                                  std::byte* row, std::uint32_t cols) {
  // Whole warps: the last one may have lanes without a block.
  for (std::uint32_t start = threadIdx.x / 32 * 32; start < n_blocks * S::kLanesOfBlock; start += blockDim.x) {
    const std::uint32_t block = (start + threadIdx.x % 32) / S::kLanesOfBlock, lane = threadIdx.x % S::kLanesOfBlock;
    const bool valid = block < n_blocks;
    const LaneWords<S> words = quantize<S>(values + block * S::kValues, lane, valid);
    write_card<S>(words, row, cols, first_block + block, lane, valid);
  }
}

// Values first .. first + n - 1 of a card row of any class; whole blocks.
__device__ __forceinline__ void write_card_values(ActivationClass activation, const float* values, std::uint32_t first,
                                                  std::uint32_t n, std::byte* row, std::uint32_t cols) {
  if (activation == ActivationClass::kA8x256) {
    write_card_blocks<BlockLanes<256>>(values, first / 256, n / 256, row, cols);
  } else if (activation == ActivationClass::kA8x32) {
    write_card_blocks<BlockLanes<32>>(values, first / 32, n / 32, row, cols);
  } else {
    for (std::uint32_t i = threadIdx.x; i < n; i += blockDim.x) reinterpret_cast<float*>(row)[first + i] = values[i];
  }
}

}  // namespace terrace::kernels::cuda
