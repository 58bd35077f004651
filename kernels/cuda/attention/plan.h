// Which kernel computes attention's splits, for how many rows at a time, and what it needs of a card. Plain C++ from
// shapes and limits alone, so it is tested without a card.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace terrace::kernels::cuda {

// What prompt.cu holds for a thread block: no more than the 99 KiB that a consumer's card has (sm_86, sm_89, sm_120).
inline constexpr std::uint32_t kPromptQueries = 64;  // rows times the query heads of a KV head
inline constexpr std::uint32_t kPromptKeys = kSplitPositions;
inline constexpr std::uint32_t kPromptPart = 4096;  // values of K or V
struct PromptShared {
  float p[kPromptKeys * kPromptQueries];  // first the queries, [d, kPromptQueries]
  float part[2][kPromptPart];
  float max[kPromptQueries], sum[kPromptQueries];            // of the splits so far
  float before[kPromptQueries], other[kPromptQueries];       // factors of the merge
  std::uint32_t n_keys[kPromptQueries];                      // of the split
  std::uint32_t blocks[2][kPromptKeys / kKvBlockPositions];  // of the split and of the next
};
static_assert(sizeof(PromptShared) <= 99 * 1024);

// Fewer tiles of rows are faster by splits.cu.
inline constexpr std::uint32_t kPromptFromTiles = 4;
// Rows that share a thread block of prompt.cu, with all query heads of a KV head; 0: not a shape for that kernel.
std::uint32_t prompt_tile_rows(const AttentionArgs& args);

struct AttentionWay {
  bool prompt = false;     // prompt.cu; else splits.cu
  bool whole = false;      // a thread block goes through all splits of its rows
  std::uint32_t rows = 0;  // of a launch: as many as fit the scratch
};
// Rows that share a stream share its keys in the prompt's kernel. With too few of them for the card each split of
// theirs is a thread block's work, as it is for the other kernel. A card without PromptShared for a thread block has
// the other kernel for all rows.
AttentionWay choose_way(const CardInfo& card, const AttentionArgs& args);

}  // namespace terrace::kernels::cuda
