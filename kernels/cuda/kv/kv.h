// The KV cache on a card: blocks of 32 positions as kernels/cpu/ops/args.h lays them out (K transposed), found through
// block tables.
// Memory   All pointers are card memory.
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "kernels/cpu/ops/args.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

// One layer's cache. Block b, KV head h: K at k + (b * n_kv_heads + h) * 32 * head_dim values, V at the like place.
struct KvCache {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  KvType type = KvType::kF16;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t value_dim = 0;
  const std::uint32_t* block_tables = nullptr;  // [n_streams, table_stride]: block of positions 32i .. 32i + 31
  std::uint32_t table_stride = 0;
};

struct KvAppendArgs {
  KvCache cache;
  const float* k = nullptr;  // [n_rows, n_kv_heads, head_dim] after RoPE, k_stride floats apart
  std::size_t k_stride = 0;
  const float* v = nullptr;  // [n_rows, n_kv_heads, value_dim]
  std::size_t v_stride = 0;
  const std::uint32_t* streams = nullptr;    // [n_rows]: whose block table
  const std::uint32_t* positions = nullptr;  // [n_rows]: below 32 * table_stride; no two rows the same place
  std::uint32_t n_rows = 0;
  std::uint8_t* failed = nullptr;  // [n_rows]: set to 1 where a value is not storable: not finite, or an f16
                                   // overflow
};

// Stores one position of each row, rounded to nearest even. kInvalidArgument: shapes.
Status kv_append(const Stream& stream, const KvAppendArgs& args);

}  // namespace terrace::kernels::cuda
