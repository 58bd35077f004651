#include "kernels/cuda/expert_gemv/block_kernel.cuh"
#include "kernels/cuda/weights/k_types.h"

namespace terrace::kernels::cuda {

void launch_gemv_q5_k(const GemvKernelArgs& args, CUstream_st* stream) { launch_gemv_blocks<Q5K, 256>(args, stream); }

}  // namespace terrace::kernels::cuda
