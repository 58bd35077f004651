// The kernels' part of `terrace bench --limits`, in shape only: times are no assertions.
#include "coordinator/app/dot_rates.h"

#include <gtest/gtest.h>

#include <set>

#include "common/threads/pool.h"
#include "kernels/registry/registry.h"

namespace terrace::app {
namespace {

TEST(DotRates, EveryTypeOnce_WithTheKernelThatRunsUse) {
  const kernels::CpuFeatures cpu = kernels::detect_cpu_features();
  const std::unique_ptr<Pool> pool = Pool::create({.n_workers = 2}).value();
  const auto rates = measure_dot_rates(*pool, cpu, std::nullopt, Bytes{4 << 20}).value();
  std::set<TensorType> types;
  for (const DotRate& rate : rates) {
    EXPECT_TRUE(types.insert(rate.type).second) << rate.kernel_name;
    EXPECT_STREQ(rate.kernel_name, kernels::select_weight_kernels(rate.type, cpu, {})->kernel_name);
    EXPECT_GT(rate.gb_per_second, 0) << rate.kernel_name;
    EXPECT_GT(rate.prompt_gops, 0) << rate.kernel_name;
  }
  for (const kernels::WeightKernels& row : kernels::all_weight_kernels()) EXPECT_TRUE(types.contains(row.type));
}

TEST(DotRates, AnIsaThatTheCpuLacks_IsRefused) {
  Serial serial;
  const auto rates = measure_dot_rates(serial, {}, kernels::Isa::kAvx2, Bytes{4 << 20});
  ASSERT_FALSE(rates.ok());
  EXPECT_EQ(rates.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace terrace::app
