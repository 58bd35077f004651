#include "kernels/cpu/activations/activations.h"

#include <cstring>

#include "kernels/cpu/activations/quantize_blocks.h"

namespace terrace::kernels {
namespace {

using ToA8x32 = void (*)(const float* x, std::size_t n_blocks, BlockA8x32* out);
using ToA8x256 = void (*)(const float* x, std::size_t n_blocks, BlockA8x256* out);

void quantize_row(ActivationClass activation, const float* x, std::size_t cols, std::byte* out, ToA8x32 to_a8_32,
                  ToA8x256 to_a8_256) {
  switch (activation) {
    case ActivationClass::kF32:
      std::memcpy(out, x, cols * sizeof(float));
      return;
    case ActivationClass::kA8x32:
      to_a8_32(x, cols / 32, reinterpret_cast<BlockA8x32*>(out));
      return;
    case ActivationClass::kA8x256:
      to_a8_256(x, cols / 256, reinterpret_cast<BlockA8x256*>(out));
      return;
  }
}

}  // namespace

void quantize_row_scalar(ActivationClass activation, const float* x, std::size_t cols, std::byte* out) {
  quantize_row(activation, x, cols, out, quantize_blocks_scalar, quantize_blocks_scalar);
}

#if defined(__x86_64__)
void quantize_row_avx2(ActivationClass activation, const float* x, std::size_t cols, std::byte* out) {
  quantize_row(activation, x, cols, out, quantize_blocks_avx2, quantize_blocks_avx2);
}
void quantize_row_avx512_vnni(ActivationClass activation, const float* x, std::size_t cols, std::byte* out) {
  quantize_row(activation, x, cols, out, quantize_blocks_avx512_vnni, quantize_blocks_avx512_vnni);
}
#endif

}  // namespace terrace::kernels
