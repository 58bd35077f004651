#include "kernels/cuda/expert_gemv/mma.cuh"

#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_q8_0(const GemvKernelArgs& args, CUstream_st* stream) { launch_gemv_blocks<Q8_0>(args, stream); }

}  // namespace terrace::kernels::cuda
