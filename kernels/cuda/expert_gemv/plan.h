// How a GEMV is cut: the tile of weight rows that one thread block stages in shared memory, the rows of x of one pass,
// and where things lie. Plain C++ from shapes alone, so it is tested without a card.
//
// One thread block takes `tile_rows` weight rows, all their columns, and meets them with n rows of x in passes of
// `pass_rows`. Weight rows lie in shared memory an odd multiple of 16 bytes apart: threads of neighbouring rows then
// read 16-byte words from different banks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "common/base/tensor_type.h"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kGemvThreads = 256;
inline constexpr std::uint32_t kMaxPassRows = 8;

struct GemvShape {
  TensorType type = TensorType::kF32;
  ActivationClass activation = ActivationClass::kF32;  // of the type
  std::uint32_t x_sum_values = 0;                      // values of one staged sum of x; 0 for float types
  std::uint32_t weight_rows = 0;
  std::uint32_t cols = 0;
  std::uint32_t groups = 0;
  std::uint32_t max_rows = 0;  // of x, in one group
};

// What the plan needs to know of the card.
struct GemvCard {
  std::uint32_t multiprocessors = 0;
  std::uint32_t shared_bytes_per_block = 0;  // the most that a block may ask for
};

struct GemvPlan {
  std::uint32_t tile_rows = 0;  // a power of two, 1 .. 32
  std::uint32_t log_tile_rows = 0;
  std::uint32_t pass_rows = 0;    // 1, 2, 4 or 8
  std::uint32_t tiles = 0;        // thread blocks of one group
  std::uint32_t w_row_bytes = 0;  // in the matrix
  std::uint32_t w_stride = 0;     // in shared memory
  std::uint32_t x_offset = 0;     // the staged rows of x: x_rows.h for blocks, f32 [cols] for float types
  std::uint32_t x_stride = 0;
  std::uint32_t x_d_offset = 0;
  std::uint32_t x_sums_offset = 0;
  std::uint32_t v_offset = 0;  // chunk values f32 [blocks of a row, pass_rows, tile_rows]; block types only
  std::uint32_t shared_bytes = 0;
};

// kInvalidArgument: no rows, or columns that are no multiple of the blocks. kUnsupported: a row is so long that not
// even one fits in this card's shared memory; the text gives both sizes.
Result<GemvPlan> plan_gemv(const GemvShape& shape, const GemvCard& card);

}  // namespace terrace::kernels::cuda
