#include <cmath>

#include "kernels/cpu/activations/quantize_blocks.h"

namespace terrace::kernels {
namespace {

template <class Block>
void quantize_block(const float* x, Block& out) {
  constexpr int kValues = sizeof out.q;
  float amax = 0.0f;
  for (int i = 0; i < kValues; ++i) amax = std::fmax(amax, std::fabs(x[i]));
  if (amax < kSmallestAmax) {
    out = Block{};
    return;
  }
  out.d = amax / 127.0f;
  const float inverse = 127.0f / amax;
  for (int i = 0; i < kValues; ++i) {
    const float q = std::nearbyint(x[i] * inverse);  // to nearest even
    out.q[i] = static_cast<std::int8_t>(std::fmin(std::fmax(q, -127.0f), 127.0f));
  }
}

template <class Block>
void quantize_blocks(const float* x, std::size_t n_blocks, Block* out) {
  for (std::size_t c = 0; c < n_blocks; ++c) quantize_block(x + c * sizeof out->q, out[c]);
}

}  // namespace

void quantize_blocks_scalar(const float* x, std::size_t n_blocks, BlockA8x32* out) {
  quantize_blocks(x, n_blocks, out);
}
void quantize_blocks_scalar(const float* x, std::size_t n_blocks, BlockA8x256* out) {
  quantize_blocks(x, n_blocks, out);
}

}  // namespace terrace::kernels
