#include "kernels/cuda/expert_gemv/stage.cuh"

#include "kernels/cuda/expert_gemv/float_gemm.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_bf16(const GemvKernelArgs& args, CUstream_st* stream) { launch_floats<Bf16Element>(args, stream); }

}  // namespace terrace::kernels::cuda
