// Every variant of every operation, one namespace per ISA; select.cpp puts them into tables. Contracts: ops.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/ops/args.h"

// The one list of them: OPERATION(result, name, parameters).
#define TERRACE_OPERATIONS(OPERATION)                                                                                 \
  OPERATION(bool, all_finite, (const float* x, std::size_t n))                                                        \
  OPERATION(void, rms_norm, (const float* x, const float* w, std::size_t n, float eps, float* y))                     \
  OPERATION(void, add, (float* x, const float* y, std::size_t n))                                                     \
  OPERATION(void, rope, (float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing)) \
  OPERATION(void, silu_mul, (const float* gate, const float* up, std::size_t n, float* h))                            \
  OPERATION(std::size_t, largest, (const float* x, std::size_t n))                                                    \
  OPERATION(void, exp, (const float* x, std::size_t n, float* y))                                                     \
  OPERATION(void, silu, (const float* x, std::size_t n, float* y))                                                    \
  OPERATION(bool, add_fixed, (float weight, const float* out, std::size_t n, int shift, std::int64_t* sums))          \
  OPERATION(bool, from_fixed, (const std::int64_t* sums, std::size_t n, int shift, float* x))                         \
  OPERATION(void, store_k, (const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block))   \
  OPERATION(void, store_v, (const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block))  \
  OPERATION(bool, storable, (const float* x, std::size_t n, KvType type))                                             \
  OPERATION(void, attend, (const AttentionArgs& args))                                                                \
  OPERATION(void, attend_splits, (const AttentionArgs& args, const AttentionSplits& splits))                          \
  OPERATION(void, merge_splits, (const AttentionArgs& args, float* states))

#define TERRACE_DECLARE(result, name, parameters) result name parameters;
namespace terrace::kernels::scalar {
TERRACE_OPERATIONS(TERRACE_DECLARE)
}
namespace terrace::kernels::avx2 {
TERRACE_OPERATIONS(TERRACE_DECLARE)
}
namespace terrace::kernels::avx512_vnni {
TERRACE_OPERATIONS(TERRACE_DECLARE)
}
#undef TERRACE_DECLARE
