#include "kernels/selftest/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/ops/ops.h"
#include "kernels/registry/registry.h"

namespace terrace::kernels {
namespace {

TEST(Selftest, ThisBuild_EverythingEqual) {
  const auto rows = run_selftest(detect_cpu_features());
  for (const SelftestRow& row : rows) EXPECT_TRUE(row.ok) << row.what << " on " << name(row.isa);
  EXPECT_TRUE(check(rows).ok());
}

TEST(Selftest, EveryVariantOfThisMachine_HasARow) {
  const CpuFeatures cpu = detect_cpu_features();
  const auto rows = run_selftest(cpu);
  for (const WeightKernels& kernels : all_weight_kernels()) {
    if (!cpu.has(kernels.isa)) continue;
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const SelftestRow& row) {
      return row.what == info(kernels.type).name && row.isa == kernels.isa && row.kernel_name == kernels.kernel_name;
    })) << kernels.kernel_name;
  }
  for (const Ops& ops : all_ops()) {
    if (!cpu.has(ops.isa)) continue;
    for (const char* what : {"EXP", "SILU"})
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const SelftestRow& row) {
        return row.what == what && row.isa == ops.isa;
      })) << what;
  }
}

TEST(Selftest, OneRowDiffers_NamedWithTypeIsaAndKernel) {
  auto rows = run_selftest({});
  rows.push_back({"Q4_K", Isa::kAvx2, "dot_rows_q4_k_avx2", false});
  const Status status = check(rows);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().text(), ::testing::HasSubstr("Q4_K on avx2 (dot_rows_q4_k_avx2)"));
}

}  // namespace
}  // namespace terrace::kernels
