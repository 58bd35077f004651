// Rows of one activation class, one function per class and ISA; activations.cpp picks among them by class.
#pragma once

#include <cstddef>

#include "kernels/cpu/activations/block.h"

namespace terrace::kernels {

// out[n_blocks] = the blocks of x [n_blocks * 32], or [n_blocks * 256].
void quantize_blocks_scalar(const float* x, std::size_t n_blocks, BlockA8x32* out);
void quantize_blocks_scalar(const float* x, std::size_t n_blocks, BlockA8x256* out);
void quantize_blocks_avx2(const float* x, std::size_t n_blocks, BlockA8x32* out);
void quantize_blocks_avx2(const float* x, std::size_t n_blocks, BlockA8x256* out);
void quantize_blocks_avx512_vnni(const float* x, std::size_t n_blocks, BlockA8x32* out);
void quantize_blocks_avx512_vnni(const float* x, std::size_t n_blocks, BlockA8x256* out);

}  // namespace terrace::kernels
