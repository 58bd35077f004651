// RMSNorm and RoPE of docs/numerics.md 8.
#include <cmath>

#include "kernels/cpu/ops/scalar.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::scalar {

void rms_norm(const float* x, const float* w, std::size_t n, float eps, float* y) {
  Lanes lanes;
  for (std::size_t i = 0; i < n; ++i) lanes.of(i) = std::fma(x[i], x[i], lanes.of(i));
  const float r = 1.0f / std::sqrt(lanes.total() / static_cast<float>(n) + eps);
  for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

void rope(float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing) {
  const std::size_t n_pairs = n_rot / 2;
  for (std::size_t p = 0; p < n_pairs; ++p) {
    float& first = pairing == RopePairing::kNeox ? x[p] : x[2 * p];
    float& second = pairing == RopePairing::kNeox ? x[p + n_pairs] : x[2 * p + 1];
    const float x0 = first;
    const float x1 = second;
    first = x0 * cosines[p] - x1 * sines[p];
    second = x0 * sines[p] + x1 * cosines[p];
  }
}

}  // namespace terrace::kernels::scalar
