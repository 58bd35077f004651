#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_q4_0(const GemvKernelArgs& args, CUstream_st* stream) { launch_gemv_blocks<Q4_0>(args, stream); }

}  // namespace terrace::kernels::cuda
