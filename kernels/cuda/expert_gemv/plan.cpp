#include "kernels/cuda/expert_gemv/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <span>

#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {
namespace {

// Three thread blocks share a multiprocessor's 228 KiB: while one waits for its weights another computes.
constexpr std::uint64_t kTargetBytes = 74 * 1024;
constexpr std::uint32_t kMaxTileRows = 32;
constexpr std::uint32_t kMaxThreads = 256;
constexpr std::uint32_t kWarp = 32;
constexpr std::uint32_t kLanesOfFloats = 16;

// How a method may be cut, and the largest tile that fits a number of bytes.
struct Cut {
  GemvMethod method;
  std::uint32_t pass_rows;
  std::uint32_t x_buffers;      // where there is more than one pass
  std::uint32_t min_tile_rows;  // below this there is no tile
  std::uint32_t
      spread_tile_rows;  // small matrices are cut finer, down to this, until each multiprocessor has two tiles
};

std::uint32_t odd_sixteens(std::uint64_t bytes) { return static_cast<std::uint32_t>(16 * ((bytes + 15) / 16 | 1)); }

std::uint32_t blocks_of_row(const GemvShape& shape) { return shape.cols / info(shape.type).block_values; }

std::uint32_t threads_of(const GemvShape& shape, const Cut& cut, std::uint32_t tile_rows) {
  std::uint32_t wanted = kLanesOfFloats * tile_rows / float_rows_of_thread(cut.pass_rows);
  if (cut.method == GemvMethod::kBlocks) wanted = blocks_of_row(shape) * tile_rows;
  if (cut.method == GemvMethod::kMma) wanted = blocks_of_row(shape) * (tile_rows / 16) * kWarp;
  return std::min((wanted + kWarp - 1) / kWarp * kWarp, kMaxThreads);
}

// 64 bits: rows may be too long for any card.
std::uint64_t lay_out(const GemvShape& shape, const Cut& cut, std::uint32_t tile_rows, GemvPlan& plan) {
  const std::uint64_t w_row_bytes = row_bytes(shape.type, shape.cols);
  const CardRowLayout card_row = card_row_layout(block_values(shape.activation), shape.cols);
  const std::uint32_t x_row_bytes = shape.x_sum_values == 32 ? card_row.sums16 : card_row.bytes;
  plan.method = cut.method;
  plan.threads = threads_of(shape, cut, tile_rows);
  plan.tile_rows = tile_rows;
  plan.log_tile_rows = static_cast<std::uint32_t>(std::countr_zero(tile_rows));
  plan.pass_rows = cut.pass_rows;
  plan.tiles = (shape.weight_rows + tile_rows - 1) / tile_rows;
  plan.w_row_bytes = static_cast<std::uint32_t>(w_row_bytes);
  // A row begins up to 14 bytes behind a multiple of 16, and the word reader looks 3 bytes ahead.
  plan.w_stride = odd_sixteens(w_row_bytes + 14 + 3);
  plan.x_row_bytes = x_row_bytes;
  plan.x_stride = odd_sixteens(x_row_bytes);
  plan.x_buffers = shape.max_rows > cut.pass_rows ? cut.x_buffers : 1;
  plan.x_offset = plan.w_stride * tile_rows;
  // Four floats more: the tensor cores' results of one row of x then lie in other banks than the next row's.
  plan.v_stride = cut.method == GemvMethod::kMma ? tile_rows + 4 : tile_rows;
  const std::uint64_t v_offset =
      std::uint64_t{plan.w_stride} * tile_rows + std::uint64_t{plan.x_stride} * cut.pass_rows * plan.x_buffers;
  plan.v_offset = static_cast<std::uint32_t>(v_offset);
  const std::uint64_t values =
      cut.method == GemvMethod::kFloats ? 0 : std::uint64_t{blocks_of_row(shape)} * cut.pass_rows;
  const std::uint64_t barrier_offset = (v_offset + values * plan.v_stride * sizeof(float) + 15) / 16 * 16;
  plan.barrier_offset = static_cast<std::uint32_t>(barrier_offset);
  const std::uint64_t total = barrier_offset + 16;
  plan.shared_bytes = static_cast<std::uint32_t>(total);
  return total;
}

// The largest tile within `bytes`; 0: none.
std::uint32_t largest_tile(const GemvShape& shape, const Cut& cut, std::uint64_t bytes) {
  GemvPlan plan;
  for (std::uint32_t rows = kMaxTileRows; rows >= cut.min_tile_rows; rows /= 2)
    if (lay_out(shape, cut, rows, plan) <= bytes) return rows;
  return 0;
}

Status check(const GemvShape& shape) {
  const std::uint32_t block = std::max(info(shape.type).block_values, block_values(shape.activation));
  if (shape.weight_rows > 0 && shape.cols > 0 && shape.cols % block == 0 && shape.groups > 0 && shape.max_rows > 0)
    return {};
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} weights [{}, {}] in {} groups of at most {} rows: columns come in {}s, and nothing is zero",
                  info(shape.type).name, shape.weight_rows, shape.cols, shape.groups, shape.max_rows, block));
}

// Fastest first; the last demands least.
constexpr Cut kFloatCuts[] = {{GemvMethod::kFloats, 8, 2, 16, 16},
                              {GemvMethod::kFloats, 4, 2, 8, 8},
                              {GemvMethod::kFloats, 2, 2, 1, 2},
                              {GemvMethod::kFloats, 1, 2, 1, 2},
                              {GemvMethod::kFloats, 1, 1, 1, 2}};
constexpr Cut kBlockCuts[] = {{GemvMethod::kMma, kMmaRows, 2, 16, 16},
                              {GemvMethod::kMma, kMmaRows, 1, 16, 16},
                              {GemvMethod::kBlocks, 1, 2, 1, 8},
                              {GemvMethod::kBlocks, 1, 1, 1, 8}};

// The tensor cores take eight rows at a time, live or not; up to this many, passes of one row still hide behind the
// weights' arrival.
constexpr std::uint32_t kMaxRowsByBlocks = 3;

// Whether a cut is meant for so many rows of x: a pass of floats is at least half full.
bool suits(const Cut& cut, std::uint32_t max_rows) {
  return cut.method == GemvMethod::kMma ? max_rows > kMaxRowsByBlocks : cut.pass_rows < 2 * max_rows;
}

Cut choose_cut(const GemvShape& shape, const GemvCard& card) {
  const bool is_float = shape.activation == ActivationClass::kF32;
  const std::span<const Cut> cuts = is_float ? std::span<const Cut>(kFloatCuts) : std::span<const Cut>(kBlockCuts);
  for (const Cut& cut : cuts)
    if (suits(cut, shape.max_rows) && largest_tile(shape, cut, card.shared_bytes_per_block) != 0) return cut;
  return cuts.back();
}

}  // namespace

Result<GemvPlan> plan_gemv(const GemvShape& shape, const GemvCard& card) {
  TERRACE_RETURN_IF_ERROR(check(shape));
  const Cut cut = choose_cut(shape, card);
  // Rows that miss the target by themselves still run, a block to a multiprocessor.
  std::uint32_t tile_rows =
      largest_tile(shape, cut, std::min<std::uint64_t>(kTargetBytes, card.shared_bytes_per_block));
  if (tile_rows == 0) tile_rows = largest_tile(shape, cut, card.shared_bytes_per_block);
  GemvPlan plan;
  if (tile_rows == 0)
    return Error(
        ErrorCode::kUnsupported,
        fmt::format("a row of {} {} columns needs {} bytes of shared memory, a block of this card has {}", shape.cols,
                    info(shape.type).name, lay_out(shape, cut, 1, plan), card.shared_bytes_per_block));
  const auto tiles = [&] { return std::uint64_t{shape.groups} * ((shape.weight_rows + tile_rows - 1) / tile_rows); };
  while (tile_rows > cut.spread_tile_rows && tiles() < 2 * std::uint64_t{card.multiprocessors}) tile_rows /= 2;
  lay_out(shape, cut, tile_rows, plan);
  return plan;
}

}  // namespace terrace::kernels::cuda
