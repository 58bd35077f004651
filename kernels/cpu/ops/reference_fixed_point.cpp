// The sum over experts as integers (docs/numerics.md 5).
#include <cmath>

#include "kernels/cpu/ops/scalar.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::scalar {

bool add_fixed(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums) {
  const float limit = std::ldexp(1.0f, kFixedBits - shift);
  const double unit = std::ldexp(1.0, shift);
  for (std::size_t i = 0; i < n; ++i) {
    const float t = weight * out[i];
    if (!(std::fabs(t) < limit)) return false;  // a NaN compares false
    sums[i] += static_cast<std::int64_t>(std::rint(static_cast<double>(t) * unit));
  }
  return true;
}

bool from_fixed(const std::int64_t* sums, std::size_t n, int shift, float* x) {
  constexpr std::int64_t kLimit = std::int64_t{1} << kFixedBits;
  const double unit = std::ldexp(1.0, -shift);
  for (std::size_t i = 0; i < n; ++i) {
    if (sums[i] <= -kLimit || sums[i] >= kLimit) return false;
    x[i] = static_cast<float>(static_cast<double>(sums[i]) * unit);
  }
  return true;
}

}  // namespace terrace::kernels::scalar
