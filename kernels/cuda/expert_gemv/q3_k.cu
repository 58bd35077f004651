#include "kernels/cuda/expert_gemv/gemm.cuh"

#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_q3_k(const GemvKernelArgs& args, CUstream_st* stream) { launch_gemv_blocks<Q3K>(args, stream); }

}  // namespace terrace::kernels::cuda
