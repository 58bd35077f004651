#include "kernels/cuda/dense/dense.h"

#include "kernels/cuda/expert_gemv/expert_gemv.h"

namespace terrace::kernels::cuda {

Status dense(const Stream& stream, const DenseArgs& args) {
  GemvArgs gemv;
  gemv.type = args.type;
  gemv.weight_rows = args.weight_rows;
  gemv.cols = args.cols;
  gemv.x = args.x;
  gemv.x_stride = args.x_stride;
  gemv.y = args.y;
  gemv.y_stride = args.y_stride;
  return gemv_one(stream, gemv, {args.w, 0, args.n_rows});
}

}  // namespace terrace::kernels::cuda
