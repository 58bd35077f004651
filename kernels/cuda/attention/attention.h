// Attention over the KV cache on a card, decode and prompts: splits of 256 absolute positions, merged in rising order
// (docs/numerics.md 8). The order is the CPU trunk's own in every kernel, so results equal kernels/cpu/ops by ==, and a
// row's bits depend neither on the rows beside it nor on how a prompt was cut (P4).
//
// Memory   All pointers are card memory. Scratch of attention_scratch_bytes() of all rows is one launch; with less, but
//          no less than one row's, there are more of fewer rows.
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/kv/kv.h"

namespace terrace::kernels::cuda {

struct AttentionArgs {
  KvCache cache;
  const float* q = nullptr;  // [n_rows, n_heads, head_dim] after RoPE, q_stride floats apart
  std::size_t q_stride = 0;
  float* out = nullptr;  // [n_rows, n_heads, value_dim]
  std::size_t out_stride = 0;
  const std::uint32_t* streams = nullptr;  // [n_rows]: whose block table
  const std::uint32_t* n_keys = nullptr;   // [n_rows]: 1 .. max_keys; keys 0 .. n_keys - 1 take part
  std::uint32_t n_rows = 0;                // at most 65,535
  std::uint32_t n_heads = 0;               // a multiple of the cache's KV heads; neighbours share one
  std::uint32_t max_keys = 0;              // sizes the launch: a captured step is replayed up to here
  // No two rows are of one stream, so no row attends to a key that another of this step wrote (decoding): all but its
  // last block may then be brought before the kernels before this one have ended. Streams, n_keys and block tables are
  // older than those.
  bool rows_are_alone = false;
  float scale = 0;
  const float* sinks = nullptr;  // [n_heads] or null
  float* scratch = nullptr;
  std::uint64_t scratch_bytes = 0;
};

std::uint64_t attention_scratch_bytes(std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t value_dim,
                                      std::uint32_t max_keys);

// kInvalidArgument: shapes; kInternal: the launch was refused. Both name the sizes.
Status attend(const Stream& stream, const AttentionArgs& args);

// The same with results as card rows of n_heads * value_dim values, whole blocks of their class; args.out is not used.
struct AttentionRows {
  CardRowsOut out;
  std::uint32_t code = 0;             // a result is not finite
  std::uint32_t* failures = nullptr;  // [n_rows]
};
Status attend(const Stream& stream, const AttentionArgs& args, const AttentionRows& rows);

}  // namespace terrace::kernels::cuda
