// Operations that treat each value alone: finiteness, the largest, addition, EXP, SILU.
#include <bit>
#include <cstdint>

#include "kernels/cpu/ops/scalar.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::scalar {

bool all_finite(const float* x, std::size_t n) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  for (std::size_t i = 0; i < n; ++i)
    if ((std::bit_cast<std::uint32_t>(x[i]) & kExponent) == kExponent) return false;
  return true;
}

std::size_t largest(const float* x, std::size_t n) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* h) {
  for (std::size_t i = 0; i < n; ++i) h[i] = silu(gate[i]) * up[i];
}

void exp(const float* x, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = exp(x[i]);
}

void silu(const float* x, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = silu(x[i]);
}

}  // namespace terrace::kernels::scalar
