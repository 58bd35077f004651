// What the operations' arguments are made of: plain structs, so that files compiled for one ISA may include them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

enum class RopePairing : std::uint8_t { kNeox, kAdjacent };  // (p, p + n_rot/2), or (2p, 2p + 1)

// ---- the KV cache's storage, as attention reads it -----------------------------------------------------------------
enum class KvType : std::uint8_t { kF16, kF32 };
constexpr std::size_t bytes(KvType type) { return type == KvType::kF16 ? 2 : 4; }

// Positions of one cache block, and of one split of docs/numerics.md 8: eight blocks.
inline constexpr std::size_t kKvBlockPositions = 32;
inline constexpr std::size_t kSplitPositions = 256;

// One KV head of one block of one layer, in the cache's type:
//   K  [head_dim, kKvBlockPositions]   transposed, so that scores of 32 keys are one chain of vector fmas
//   V  [kKvBlockPositions, value_dim]
// Bases are 64-byte aligned. The whole block is readable; what lies at positions that were not written has no effect.

struct AttentionArgs {
  const float* q = nullptr;             // [n_heads, head_dim]: the query heads that share this KV head, after RoPE
  float* out = nullptr;                 // [n_heads, value_dim], overwritten
  const std::byte* const* k = nullptr;  // [n_blocks] K bases of this KV head, by block of 32 positions
  const std::byte* const* v = nullptr;  // [n_blocks]
  std::size_t n_keys = 0;               // >= 1: keys 0 .. n_keys - 1 take part; the row's own key is the last
  std::size_t n_heads = 0;
  std::size_t head_dim = 0;   // a multiple of 8
  std::size_t value_dim = 0;  // a multiple of 8
  float scale = 0;
  KvType type = KvType::kF16;
  const float* sinks = nullptr;  // [n_heads] or null
  float* scratch = nullptr;      // attention_scratch_floats() floats of this worker
};

// Some splits of one row's attention, for workers that share a row: split i holds the positions from
// kSplitPositions * i on.
struct AttentionSplits {
  std::size_t first = 0;
  std::size_t n = 0;
  float* states = nullptr;  // [n, attention_state_floats()] what each split gives
};

}  // namespace terrace::kernels
