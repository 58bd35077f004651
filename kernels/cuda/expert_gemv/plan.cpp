#include "kernels/cuda/expert_gemv/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace terrace::kernels::cuda {
namespace {

// Three thread blocks share a multiprocessor's 228 KiB: while one waits for its weights another computes.
constexpr std::uint64_t kTargetBytes = 74 * 1024;
// Beyond this the rows of x would crowd out the weights: fewer rows a pass.
constexpr std::uint64_t kMaxXBytes = 66 * 1024;
constexpr std::uint32_t kMaxTileRows = 32;
// Small matrices are cut finer, down to this, until each multiprocessor has two tiles.
constexpr std::uint32_t kMinTileRowsForSpread = 8;

std::uint64_t round_up(std::uint64_t n, std::uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

bool is_float(const GemvShape& shape) { return shape.activation == ActivationClass::kF32; }

// A row begins up to 14 bytes behind a multiple of 16, and the word reader looks 3 bytes ahead.
std::uint64_t staged_row_bytes(std::uint64_t row_bytes) {
  const std::uint64_t sixteens = (row_bytes + 14 + 3 + 15) / 16;
  return 16 * (sixteens | 1);
}

struct Layout {
  std::uint64_t x_offset, x_stride, x_d_offset, x_sums_offset, v_offset, total;
};

Layout lay_out(const GemvShape& shape, std::uint64_t w_stride, std::uint64_t tile_rows, std::uint64_t pass_rows) {
  Layout at{};
  at.x_offset = w_stride * tile_rows;
  if (is_float(shape)) {
    at.x_stride = round_up(std::uint64_t{shape.cols} * sizeof(float), 16);
    at.v_offset = at.total = at.x_offset + at.x_stride * pass_rows;
    return at;
  }
  at.x_d_offset = round_up(shape.cols, 16);
  at.x_sums_offset = at.x_d_offset + round_up(shape.cols / block_values(shape.activation) * sizeof(float), 16);
  at.x_stride = at.x_sums_offset + round_up(shape.cols / shape.x_sum_values * sizeof(std::int16_t), 16);
  at.v_offset = at.x_offset + at.x_stride * pass_rows;
  const std::uint64_t row_blocks = shape.cols / info(shape.type).block_values;
  at.total = at.v_offset + row_blocks * pass_rows * tile_rows * sizeof(float);
  return at;
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

GemvPlan finish(const GemvShape& shape, const Layout& at, std::uint64_t w_stride, std::uint32_t tile_rows,
                std::uint32_t pass_rows) {
  const auto narrow = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
  GemvPlan plan;
  plan.tile_rows = tile_rows;
  plan.log_tile_rows = narrow(static_cast<std::uint64_t>(std::countr_zero(tile_rows)));
  plan.pass_rows = pass_rows;
  plan.tiles = (shape.weight_rows + tile_rows - 1) / tile_rows;
  plan.w_row_bytes = narrow(row_bytes(shape.type, shape.cols));
  plan.w_stride = narrow(w_stride);
  plan.x_offset = narrow(at.x_offset);
  plan.x_stride = narrow(at.x_stride);
  plan.x_d_offset = narrow(at.x_d_offset);
  plan.x_sums_offset = narrow(at.x_sums_offset);
  plan.v_offset = narrow(at.v_offset);
  plan.shared_bytes = narrow(at.total);
  return plan;
}

}  // namespace

Result<GemvPlan> plan_gemv(const GemvShape& shape, const GemvCard& card) {
  TERRACE_RETURN_IF_ERROR(check(shape));
  const std::uint64_t w_stride = staged_row_bytes(row_bytes(shape.type, shape.cols));
  std::uint32_t pass_rows = std::bit_ceil(std::min(shape.max_rows, kMaxPassRows));
  const auto total = [&](std::uint32_t tile_rows) { return lay_out(shape, w_stride, tile_rows, pass_rows).total; };
  while (pass_rows > 1 && lay_out(shape, w_stride, 1, pass_rows).x_stride * pass_rows > kMaxXBytes) pass_rows /= 2;
  std::uint32_t tile_rows = kMaxTileRows;
  while (tile_rows > 1 && total(tile_rows) > kTargetBytes) tile_rows /= 2;
  // Rows that miss the target by themselves still run, a block to a multiprocessor.
  while (tile_rows == 1 && pass_rows > 1 && total(1) > card.shared_bytes_per_block) pass_rows /= 2;
  if (total(tile_rows) > card.shared_bytes_per_block)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("a row of {} {} columns needs {} bytes of shared memory, a block of this card has {}",
                             shape.cols, info(shape.type).name, total(1), card.shared_bytes_per_block));
  const auto tiles = [&] { return std::uint64_t{shape.groups} * ((shape.weight_rows + tile_rows - 1) / tile_rows); };
  while (tile_rows > kMinTileRowsForSpread && tiles() < 2 * std::uint64_t{card.multiprocessors}) tile_rows /= 2;
  return finish(shape, lay_out(shape, w_stride, tile_rows, pass_rows), w_stride, tile_rows, pass_rows);
}

}  // namespace terrace::kernels::cuda
