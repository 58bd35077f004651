#include "kernels/cuda/expert_gemv/float_kernel.cuh"

#include "kernels/cuda/expert_gemv/float_gemm.cuh"

namespace terrace::kernels::cuda {

void launch_gemv_f16(const GemvKernelArgs& args, CUstream_st* stream) { launch_floats<F16Element>(args, stream); }

}  // namespace terrace::kernels::cuda
