#include <fmt/core.h>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels {

namespace {

#define TERRACE_SCALAR(result, name, parameters) .name = scalar::name,
#define TERRACE_AVX2(result, name, parameters) .name = avx2::name,
#define TERRACE_AVX512_VNNI(result, name, parameters) .name = avx512_vnni::name,
constexpr Ops kTables[] = {
    {.isa = Isa::kScalar, .quantize_row = quantize_row_scalar, TERRACE_OPERATIONS(TERRACE_SCALAR)},
#if defined(__x86_64__)
    {.isa = Isa::kAvx2, .quantize_row = quantize_row_avx2, TERRACE_OPERATIONS(TERRACE_AVX2)},
    {.isa = Isa::kAvx512Vnni, .quantize_row = quantize_row_avx512_vnni, TERRACE_OPERATIONS(TERRACE_AVX512_VNNI)},
#endif
};
#undef TERRACE_SCALAR
#undef TERRACE_AVX2
#undef TERRACE_AVX512_VNNI

}  // namespace

std::span<const Ops> all_ops() { return kTables; }

Result<Ops> select_ops(const CpuFeatures& cpu, std::optional<Isa> forced) {
  const Ops* widest = nullptr;
  for (const Ops& ops : all_ops())
    if (cpu.has(ops.isa) && (!forced || ops.isa == *forced)) widest = &ops;
  if (widest != nullptr) return *widest;
  return Error(ErrorCode::kUnsupported,
               fmt::format("no operations for {} run on this machine, which has {}", name(*forced), cpu.describe()));
}

}  // namespace terrace::kernels
