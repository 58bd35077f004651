#include "kernels/cuda/expert_gemv/wgmma.cuh"

#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_q6_k(const GemvKernelArgs& args, CUstream_st* stream) { launch_gemv_blocks<Q6K>(args, stream); }

}  // namespace terrace::kernels::cuda
