// The trunk's small operations on a card: norms, RoPE, residual adds, the expert's activation, finiteness.
// Result   Equal by == to the scalar table of kernels/cpu/ops (docs/numerics.md 4 and 8).
// Memory   All pointers are card memory; strides are in floats.
// Threads  As Stream. Launches only.
// Errors   kInvalidArgument: a shape that cannot be. kInternal: the launch was refused; names the card and the sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "kernels/cpu/ops/args.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

struct NormArgs {
  const float* x = nullptr;  // [n_rows, n]
  std::size_t x_stride = 0;
  const float* w = nullptr;  // [n]
  float* y = nullptr;        // [n_rows, n]; may be x
  std::size_t y_stride = 0;
  std::uint32_t n_rows = 0;  // heads of a q/k norm are rows too
  std::uint32_t n = 0;       // at most kMaxNormValues
  float eps = 0;
};
inline constexpr std::uint32_t kMaxNormValues = 12032;  // a row lies in 47 KiB of shared memory
Status rms_norm(const Stream& stream, const NormArgs& args);

struct RopeArgs {
  float* x = nullptr;  // [n_rows, n_heads, head_dim], rotated in place
  std::size_t row_stride = 0;
  std::uint32_t n_rows = 0;
  std::uint32_t n_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t n_rot = 0;         // even, <= head_dim
  const float* cosines = nullptr;  // [n_rows, n_rot / 2]: rope_table() of each row's position
  const float* sines = nullptr;
  RopePairing pairing = RopePairing::kNeox;
};
Status rope(const Stream& stream, const RopeArgs& args);

// x[i] += y[i]
Status add(const Stream& stream, float* x, const float* y, std::size_t n);
// h[i] = SILU(gate[i]) * up[i]; h may be gate.
Status silu_mul(const Stream& stream, const float* gate, const float* up, std::size_t n, float* h);
// y[i] = EXP(x[i]), SILU(x[i]): for selftest and the checksums.
Status exp(const Stream& stream, const float* x, std::size_t n, float* y);
Status silu(const Stream& stream, const float* x, std::size_t n, float* y);

// failed[row] = 1 where a row of x [n_rows, n] holds a value that is not finite; other bytes stay. `rows` maps a row of
// x to the byte (the pair's row of the batch); null: the same number.
struct FiniteArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;
  std::uint32_t n_rows = 0;
  std::uint32_t n = 0;
  const std::uint32_t* rows = nullptr;
  std::uint8_t* failed = nullptr;
};
Status mark_not_finite(const Stream& stream, const FiniteArgs& args);

}  // namespace terrace::kernels::cuda
