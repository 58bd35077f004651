// The contract's whole experts, for every ISA and number of workers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_data.h"
#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/executor/test_layer.h"
#include "tests/unit/kernels/executor/test_pool.h"

namespace terrace::kernels {
namespace {

using nlohmann::json;
using test::Bytes;

const std::filesystem::path kContract = test::data_dir() / "contract";

template <class T>
std::vector<T> array(const json& entry) {
  return test::read_array<T>(kContract / entry.at("file").get<std::string>());
}

json contract_expert(const std::string& name) {
  std::ifstream in(kContract / "index.json");
  const json index = json::parse(in);
  for (const json& entry : index["experts"])
    if (entry["name"] == name) return entry;
  throw std::runtime_error("the contract has no expert " + name);
}

TensorType type_named(const json& name) { return find_tensor_type(std::string_view(name.get<std::string>()))->type; }

class ExecutorVectors : public testing::TestWithParam<std::tuple<const char*, Isa, std::size_t>> {
 protected:
  ExecutorVectors() : entry_(contract_expert(std::get<0>(GetParam()))), pool_(std::get<2>(GetParam())) {
    layer_.shape = {type_named(entry_["types"][0]), type_named(entry_["types"][1]), type_named(entry_["types"][2]),
                    entry_["d_model"], entry_["ff"]};
    layer_.experts = {
        {array<std::byte>(entry_["gate"]), array<std::byte>(entry_["up"]), array<std::byte>(entry_["down"])}};
    for (std::uint16_t row = 0; row < 3; ++row) pairs_.push_back({row, 0, entry_["weights"][row].get<float>()});
  }
  void SetUp() override {
    if (!detect_cpu_features().has(isa())) GTEST_SKIP() << "this CPU lacks " << name(isa());
  }
  Isa isa() const { return std::get<1>(GetParam()); }

  const json entry_;
  test::TestPool pool_;
  test::Layer layer_;
  std::vector<Pair> pairs_;
};

TEST_P(ExecutorVectors, OutputsSumsAndFloats) {
  const CpuFeatures cpu = detect_cpu_features();
  const Ops ops = *select_ops(cpu, isa());
  const test::Rows rows(array<float>(entry_["x"]), layer_.shape.d_model);
  const test::Call call{layer_, rows, *select_expert_kernels(layer_.shape, cpu, isa(), Activations::kQuantised)};
  Executor executor(pool_, ops);

  test::Outcome outcome;
  const auto stats = call.slots(executor, pairs_, outcome);
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->pairs, 3u);
  EXPECT_EQ(outcome.slots, array<float>(entry_["out"]));

  ASSERT_TRUE(call.sums(executor, pairs_, outcome).ok());
  const std::size_t d_model = layer_.shape.d_model;
  std::vector<std::int64_t> total(d_model);  // the vectors add all three rows
  for (std::size_t i = 0; i < outcome.sums.size(); ++i) total[i % d_model] += outcome.sums[i];
  EXPECT_EQ(total, array<std::int64_t>(entry_["sum_of_three_rows"]));
  std::vector<float> as_floats(d_model);
  ASSERT_TRUE(ops.from_fixed(total.data(), d_model, call.shift, as_floats.data()));
  EXPECT_EQ(as_floats, array<float>(entry_["sum_of_three_rows"]["as_f32"]));
  EXPECT_EQ(outcome.failed, std::vector<std::uint8_t>(3));
}

// The gate fails when gate and up change places.
TEST_P(ExecutorVectors, SwappedGateAndUp_IsCaught) {
  std::swap(layer_.shape.gate, layer_.shape.up);
  std::swap(layer_.experts[0].gate, layer_.experts[0].up);
  const CpuFeatures cpu = detect_cpu_features();
  const Ops ops = *select_ops(cpu, isa());
  const test::Rows rows(array<float>(entry_["x"]), layer_.shape.d_model);
  const test::Call call{layer_, rows, *select_expert_kernels(layer_.shape, cpu, isa(), Activations::kQuantised)};
  Executor executor(pool_, ops);
  test::Outcome outcome;
  ASSERT_TRUE(call.slots(executor, pairs_, outcome).ok());
  EXPECT_NE(outcome.slots, array<float>(entry_["out"]));
}

INSTANTIATE_TEST_SUITE_P(Contract, ExecutorVectors,
                         testing::Combine(testing::Values("q4_k_m", "q3_k_mix", "q8_0", "mixed"),
                                          testing::ValuesIn(test::every_isa()), testing::Values(1, 2, 4)),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param)) + "_" +
                                  test::isa_identifier(std::get<1>(param_info.param)) + "_" +
                                  std::to_string(std::get<2>(param_info.param)) + "_workers";
                         });

}  // namespace
}  // namespace terrace::kernels
