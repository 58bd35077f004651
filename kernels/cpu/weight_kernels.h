// What a weight type offers on the CPU, with the types erased: the registry's rows and the folders of kernels/cpu
// meet here. Every variant equals the type's reference.cpp by == (docs/numerics.md 3).
#pragma once

#include "common/base/tensor_type.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/row_functions.h"

namespace terrace::kernels {

struct WeightKernels {
  TensorType type = TensorType::kF32;
  ActivationClass activation = ActivationClass::kF32;
  Isa isa = Isa::kScalar;        // of dot_rows; logged once, shown by selftest and status
  const char* kernel_name = "";  // "dot_rows_q4_k_avx2"
  DotRowsFn dot_rows = nullptr;
  DequantizeRowFn dequantize_row = nullptr;
};

}  // namespace terrace::kernels
