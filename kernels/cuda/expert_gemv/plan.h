// How a GEMV is cut: the tile of weight rows that one thread block stages in shared memory, the rows of x of one pass,
// and where things lie. Plain C++ from shapes alone, so it is tested without a card.
//
// One thread block takes `tile_rows` weight rows, all their columns, and meets them with n rows of x in passes of
// `pass_rows`. Rows lie in shared memory an odd multiple of 16 bytes apart: threads of neighbouring rows then read from
// different banks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "common/base/tensor_type.h"

namespace terrace::kernels::cuda {

// Rows of x that meet the tensor cores at once.
inline constexpr std::uint32_t kMmaRows = 8;

// Weight rows of one thread of kFloats: with more rows of x a value that was read serves more products.
constexpr std::uint32_t float_rows_of_thread(std::uint32_t pass_rows) { return pass_rows >= 4 ? 4 : 1; }

enum class GemvMethod : std::uint8_t {
  kBlocks,  // a thread to a block: few rows of x, or rows too long for the next
  kMma,     // int8 tensor cores: eight rows of x a pass
  kFloats,  // a thread to a lane: F32, F16, BF16
};

struct GemvShape {
  TensorType type = TensorType::kF32;
  ActivationClass activation = ActivationClass::kF32;  // of the type
  std::uint32_t x_sum_values = 0;  // of the sums of x that the type wants: 16, 32; 0 for float types
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
  GemvMethod method = GemvMethod::kBlocks;
  std::uint32_t threads = 0;
  std::uint32_t tile_rows = 0;  // a power of two, 1 .. 32; kMma: 16 or 32
  std::uint32_t log_tile_rows = 0;
  std::uint32_t pass_rows = 0;    // kBlocks: 1; kMma: 8; kFloats: 1, 2, 4 or 8
  std::uint32_t tiles = 0;        // thread blocks of one group
  std::uint32_t w_row_bytes = 0;  // in the matrix
  std::uint32_t w_stride = 0;     // in shared memory
  std::uint32_t x_row_bytes = 0;  // that a card row begins with and the type needs (kernels/cuda/weights/card_rows.h)
  std::uint32_t x_stride = 0;     // in shared memory
  std::uint32_t x_offset = 0;     // [x_buffers, pass_rows]
  std::uint32_t x_buffers = 0;    // 2: the next pass's rows arrive while one is computed
  std::uint32_t v_offset = 0;     // chunk values f32 [blocks of a row, pass_rows, v_stride]; not for kFloats
  std::uint32_t v_stride = 0;
  std::uint32_t barrier_offset = 0;  // eight bytes for the copies' barrier
  std::uint32_t shared_bytes = 0;
};

// kInvalidArgument: no rows, or columns that are no multiple of the blocks. kUnsupported: a row is so long that not
// even one fits in this card's shared memory; the text gives both sizes.
Result<GemvPlan> plan_gemv(const GemvShape& shape, const GemvCard& card);

}  // namespace terrace::kernels::cuda
