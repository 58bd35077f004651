#include "kernels/cuda/attention/plan.h"

#include <algorithm>

#include "kernels/cuda/device/launch.h"

namespace terrace::kernels::cuda {

std::uint64_t attention_scratch_bytes(std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t value_dim,
                                      std::uint32_t max_keys) {
  return std::uint64_t{n_rows} * n_heads * divide_up(max_keys, kSplitPositions) * (value_dim + 2) * sizeof(float);
}

std::uint32_t prompt_tile_rows(const AttentionArgs& args) {
  const KvCache& cache = args.cache;
  const std::uint32_t shared_by = args.n_heads / cache.n_kv_heads;
  const bool suits = cache.head_dim == cache.value_dim && (cache.head_dim == 64 || cache.head_dim == 128) &&
                     args.q_stride % 4 == 0 && kPromptQueries % shared_by == 0;
  return suits ? kPromptQueries / shared_by : 0;
}

AttentionWay choose_way(const CardInfo& card, const AttentionArgs& args) {
  const std::uint64_t one = attention_scratch_bytes(1, args.n_heads, args.cache.value_dim, 1);
  const std::uint64_t rows_whole = args.scratch_bytes / one;
  const std::uint64_t rows_by_splits = rows_whole / divide_up(args.max_keys, kSplitPositions);
  const std::uint32_t tile_rows = sizeof(PromptShared) <= card.shared_bytes_per_block ? prompt_tile_rows(args) : 0;
  AttentionWay way;
  way.prompt = tile_rows != 0 && args.n_rows >= kPromptFromTiles * tile_rows && !args.rows_are_alone;
  const std::uint64_t thread_blocks =
      way.prompt ? std::uint64_t{divide_up(args.n_rows, tile_rows)} * args.cache.n_kv_heads : 0;
  way.whole = thread_blocks >= card.multiprocessors * std::uint64_t{3} / 2;
  way.rows =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(way.whole ? rows_whole : rows_by_splits, 1, args.n_rows));
  return way;
}

}  // namespace terrace::kernels::cuda
