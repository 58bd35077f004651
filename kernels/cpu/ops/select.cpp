#include <fmt/core.h>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels {

std::span<const Ops> all_ops() {
  static constexpr Ops kTables[] = {
    {
        .isa = Isa::kScalar,
        .all_finite = scalar::all_finite,
        .quantize_row = quantize_row_scalar,
        .rms_norm = scalar::rms_norm,
        .add = scalar::add,
        .rope = scalar::rope,
        .silu_mul = scalar::silu_mul,
        .largest = scalar::largest,
        .exp = scalar::exp,
        .silu = scalar::silu,
        .add_fixed = scalar::add_fixed,
        .from_fixed = scalar::from_fixed,
        .store_k = scalar::store_k,
        .store_v = scalar::store_v,
        .storable = scalar::storable,
        .attend = scalar::attend,
        .attend_splits = scalar::attend_splits,
        .merge_splits = scalar::merge_splits,
    },
#if defined(__x86_64__)
    {
        .isa = Isa::kAvx2,
        .all_finite = avx2::all_finite,
        .quantize_row = quantize_row_avx2,
        .rms_norm = avx2::rms_norm,
        .add = avx2::add,
        .rope = avx2::rope,
        .silu_mul = avx2::silu_mul,
        .largest = avx2::largest,
        .exp = avx2::exp,
        .silu = avx2::silu,
        .add_fixed = avx2::add_fixed,
        .from_fixed = avx2::from_fixed,
        .store_k = avx2::store_k,
        .store_v = avx2::store_v,
        .storable = avx2::storable,
        .attend = avx2::attend,
        .attend_splits = avx2::attend_splits,
        .merge_splits = avx2::merge_splits,
    },
#endif
  };
  return kTables;
}

Result<Ops> select_ops(const CpuFeatures& cpu, std::optional<Isa> forced) {
  const Ops* widest = nullptr;
  for (const Ops& ops : all_ops())
    if (cpu.has(ops.isa) && (!forced || ops.isa == *forced)) widest = &ops;
  if (widest != nullptr) return *widest;
  return Error(ErrorCode::kUnsupported,
               fmt::format("no operations for {} run on this machine, which has {}", name(*forced), cpu.describe()));
}

}  // namespace terrace::kernels
