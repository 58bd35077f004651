// The weight types this build computes with: one line each. Tests, selftest, `terrace inspect` and the legs read it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "common/base/result.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/weight_kernels.h"

namespace terrace::kernels {

// All variants of all types, grouped by type, the scalar reference first in each group.
std::span<const WeightKernels> all_weight_kernels();

// True if some variant of the type is built in.
bool is_supported(TensorType type);
// "BF16, F16, F32, Q4_0, ..." for messages.
std::string supported_types();

// The widest variant of `type` that `cpu` runs, or exactly the one of `forced`.
// kUnsupported: no kernel for this type, or none for the forced ISA on this CPU; the text lists what there is.
Result<WeightKernels> select_weight_kernels(TensorType type, const CpuFeatures& cpu, std::optional<Isa> forced);

// y as DotRowsFn gives it, but over the dequantised weight row and f32 activation rows by docs/numerics.md 3.2,
// whatever the type (`--activations f32`: checking only). scratch holds cols floats.
void dot_rows_dequantized(const WeightKernels& weights, const std::byte* w, std::size_t w_row_bytes,
                          std::size_t n_weight_rows, const float* const* x, std::size_t n_x, std::size_t cols,
                          float* y, std::size_t y_stride, float* scratch);

}  // namespace terrace::kernels
