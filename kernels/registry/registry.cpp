#include "kernels/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/f16/f16.h"
#include "kernels/cpu/f32/f32.h"
#include "kernels/cpu/q3_k/q3_k.h"
#include "kernels/cpu/q4_0/q4_0.h"
#include "kernels/cpu/q4_k/q4_k.h"
#include "kernels/cpu/q5_k/q5_k.h"
#include "kernels/cpu/q6_k/q6_k.h"
#include "kernels/cpu/q8_0/q8_0.h"

namespace terrace::kernels {
namespace {

// One line a type. It has a file for every ISA of this architecture; one without would be written as single rows.
#define TERRACE_ROW(type, activation, t, isa, suffix)                 \
  {TensorType::type,           ActivationClass::activation, Isa::isa, \
   "dot_rows_" #t "_" #suffix, dot_rows_##t##_##suffix,     dequantize_row_##t},
#if defined(__x86_64__)
#define TERRACE_TYPE(type, activation, t)           \
  TERRACE_ROW(type, activation, t, kScalar, scalar) \
  TERRACE_ROW(type, activation, t, kAvx2, avx2)     \
  TERRACE_ROW(type, activation, t, kAvx512Vnni, avx512_vnni)
#else
#define TERRACE_TYPE(type, activation, t) TERRACE_ROW(type, activation, t, kScalar, scalar)
#endif

// clang-format off
constexpr WeightKernels kTable[] = {
    TERRACE_TYPE(kF32, kF32, f32)
    TERRACE_TYPE(kF16, kF32, f16)
    TERRACE_TYPE(kBF16, kF32, bf16)
    TERRACE_TYPE(kQ8_0, kA8x32, q8_0)
    TERRACE_TYPE(kQ4_0, kA8x32, q4_0)
    TERRACE_TYPE(kQ3_K, kA8x256, q3_k)
    TERRACE_TYPE(kQ4_K, kA8x256, q4_k)
    TERRACE_TYPE(kQ5_K, kA8x256, q5_k)
    TERRACE_TYPE(kQ6_K, kA8x256, q6_k)
};
// clang-format on
#undef TERRACE_TYPE
#undef TERRACE_ROW

std::string join(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

std::string isas_of(TensorType type) {
  std::vector<std::string> isas;
  for (const WeightKernels& row : kTable)
    if (row.type == type) isas.emplace_back(name(row.isa));
  return join(isas);
}

const WeightKernels* find(TensorType type, Isa isa) {
  const auto* row = std::find_if(std::begin(kTable), std::end(kTable),
                                 [&](const WeightKernels& k) { return k.type == type && k.isa == isa; });
  return row == std::end(kTable) ? nullptr : row;
}

Error no_kernel(TensorType type, const CpuFeatures& cpu, std::optional<Isa> forced) {
  if (!is_supported(type))
    return Error(ErrorCode::kUnsupported,
                 fmt::format("this build does not compute with {}; it runs {}", info(type).name, supported_types()));
  const std::string wanted = forced ? name(*forced) : "";
  if (forced && !cpu.has(*forced))
    return Error(ErrorCode::kUnsupported,
                 fmt::format("--isa {} needs instructions that this CPU lacks; it has {}", wanted, cpu.describe()));
  return Error(ErrorCode::kUnsupported,
               fmt::format("{} has no {} kernel; it has {}", info(type).name, wanted, isas_of(type)));
}

}  // namespace

std::span<const WeightKernels> all_weight_kernels() { return kTable; }

bool is_supported(TensorType type) { return find(type, Isa::kScalar) != nullptr; }

std::string supported_types() {
  std::vector<std::string> names;
  for (const WeightKernels& row : kTable)
    if (row.isa == Isa::kScalar) names.emplace_back(info(row.type).name);
  std::sort(names.begin(), names.end());
  return join(names);
}

Result<WeightKernels> select_weight_kernels(TensorType type, const CpuFeatures& cpu, std::optional<Isa> forced) {
  const WeightKernels* widest = nullptr;
  for (const WeightKernels& row : kTable)
    if (row.type == type && cpu.has(row.isa) && (!forced || row.isa == *forced) &&
        (widest == nullptr || row.isa > widest->isa))
      widest = &row;
  if (widest == nullptr) return no_kernel(type, cpu, forced);
  return *widest;
}

void dot_rows_dequantized(const WeightKernels& weights, const std::byte* w, std::size_t w_row_bytes,
                          std::size_t n_weight_rows, const float* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride, float* scratch) {
  const WeightKernels* f32 = find(TensorType::kF32, weights.isa);
  TERRACE_CHECK(f32 != nullptr, "an ISA without an F32 kernel");
  for (std::size_t r = 0; r < n_weight_rows; ++r) {
    weights.dequantize_row(w + r * w_row_bytes, cols, scratch);
    for (std::size_t j = 0; j < n_x; ++j) {
      const std::byte* x_row = reinterpret_cast<const std::byte*>(x[j]);
      f32->dot_rows(reinterpret_cast<const std::byte*>(scratch), cols * sizeof(float), 1, &x_row, 1, cols,
                    y + j * y_stride + r, y_stride);
    }
  }
}

}  // namespace terrace::kernels
