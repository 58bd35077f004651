#include "kernels/cuda/expert_gemv/planes.cuh"

#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_q5_k(const GemvKernelArgs& args, CUstream_st* stream) { launch_gemv_blocks<Q5K>(args, stream); }

}  // namespace terrace::kernels::cuda
