#include <cmath>

#include "kernels/cpu/ops/ops.h"

namespace terrace::kernels {

void rope_table(std::uint64_t position, std::size_t n_rot, double base, const RopeScaling& scaling, float* cosines,
                float* sines) {
  for (std::size_t p = 0; p < n_rot / 2; ++p) {
    const double exponent = -2.0 * static_cast<double>(p) / static_cast<double>(n_rot);
    const double angle = static_cast<double>(position) * std::pow(base, exponent) * scaling.factor;
    cosines[p] = static_cast<float>(std::cos(angle) * scaling.magnitude);
    sines[p] = static_cast<float>(std::sin(angle) * scaling.magnitude);
  }
}

}  // namespace terrace::kernels
