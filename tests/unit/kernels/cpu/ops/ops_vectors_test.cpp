// Every table against the vectors that tests/data/contract/contract.py wrote.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/test_data.h"
#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/cpu/ops/kv_blocks.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace {
namespace {

using kernels::KvType;
using kernels::Ops;
using nlohmann::json;

const std::filesystem::path kContract = test::data_dir() / "contract";

json contract_index() {
  std::ifstream in(kContract / "index.json");
  return json::parse(in);
}

std::vector<float> floats(const json& entry) {
  return test::read_array<float>(kContract / entry.at("file").get<std::string>());
}

// Sum of bits * (2i + 1) modulo 2^64, as 16 hexadecimal digits.
std::string checksum(std::span<const float> values) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += std::bit_cast<std::uint32_t>(values[i]) * (2 * i + 1);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

class OpsVectors : public testing::TestWithParam<Ops> {
 protected:
  const Ops& ops() const { return GetParam(); }
  const json index_ = contract_index();
};

TEST_P(OpsVectors, ExpAndSilu_ChecksumsOverAMillionInputs) {
  constexpr std::size_t kInputs = 1 << 20;
  std::vector<float> x(kInputs), y(kInputs);
  for (std::size_t i = 0; i < kInputs; ++i)
    x[i] = static_cast<float>(static_cast<std::int64_t>(i) - (1 << 19)) * 0x1p-12f;
  ops().exp(x.data(), kInputs, y.data());
  EXPECT_EQ(checksum(y), index_["exp"]["exp_checksum"]);
  ops().silu(x.data(), kInputs, y.data());
  EXPECT_EQ(checksum(y), index_["exp"]["silu_checksum"]);
}

TEST_P(OpsVectors, RmsNorm) {
  ASSERT_FALSE(index_["trunk"]["rmsnorm"].empty());
  for (const json& entry : index_["trunk"]["rmsnorm"]) {
    SCOPED_TRACE(entry.dump());
    std::vector<float> x = floats(entry["x"]);
    const std::vector<float> w = floats(entry["w"]);
    std::vector<float> y(x.size());
    ops().rms_norm(x.data(), w.data(), x.size(), entry["eps"].get<float>(), y.data());
    EXPECT_SAME_FLOATS(y, floats(entry["y"]));
    ops().rms_norm(x.data(), w.data(), x.size(), entry["eps"].get<float>(), x.data());
    EXPECT_SAME_FLOATS(x, y);  // in place
  }
}

TEST_P(OpsVectors, Rope) {
  ASSERT_FALSE(index_["trunk"]["rope"].empty());
  for (const json& entry : index_["trunk"]["rope"]) {
    SCOPED_TRACE(entry.dump());
    std::vector<float> x = floats(entry["x"]);
    const std::size_t n_rot = entry["n_rot"];
    std::vector<float> cosines(n_rot / 2), sines(n_rot / 2);
    kernels::rope_table(entry["pos"], n_rot, entry["base"], {}, cosines.data(), sines.data());
    const auto pairing = entry["neox"].get<bool>() ? kernels::RopePairing::kNeox : kernels::RopePairing::kAdjacent;
    ops().rope(x.data(), cosines.data(), sines.data(), n_rot, pairing);
    EXPECT_SAME_FLOATS(x, floats(entry["y"]));
  }
}

TEST_P(OpsVectors, Attention_BothCacheTypes) {
  ASSERT_FALSE(index_["trunk"]["attention"].empty());
  for (const json& entry : index_["trunk"]["attention"]) {
    const std::size_t head_dim = entry["head_dim"], value_dim = entry["value_dim"];
    const std::vector<float> sinks(1, entry["sink"].is_null() ? 0.0f : entry["sink"].get<float>());
    for (const KvType type : {KvType::kF16, KvType::kF32}) {
      SCOPED_TRACE(entry.dump() + (type == KvType::kF16 ? " f16" : " f32"));
      const test::KvBlocks cache(ops(), type, floats(entry["k"]), floats(entry["v"]), head_dim, value_dim);
      const test::AttentionCase shape{
          1, head_dim, value_dim, entry["scale"].get<float>(), type, entry["sink"].is_null() ? nullptr : sinks.data()};
      EXPECT_SAME_FLOATS(test::attend(ops(), shape, floats(entry["q"]), cache), floats(entry["o"]));
    }
  }
}

TEST_P(OpsVectors, FixedPoint_ToIntegersAndBack) {
  const std::vector<float> t = floats(index_["fixed"]["t"]);
  const auto expected = test::read_array<std::int64_t>(kContract / index_["fixed"]["F"]["file"].get<std::string>());
  std::vector<std::int64_t> sums(t.size());
  ASSERT_TRUE(ops().add_fixed(1.0f, t.data(), t.size(), index_["shift"], sums.data()));
  EXPECT_EQ(sums, expected);
}

TEST_P(OpsVectors, FixedPoint_SumsOfExpertsAsFloats) {
  for (const json& entry : index_["experts"]) {
    SCOPED_TRACE(entry["name"]);
    const std::vector<float> out = floats(entry["out"]);
    const std::size_t d_model = entry["d_model"];
    std::vector<std::int64_t> sums(d_model);
    for (std::size_t row = 0; row < 3; ++row)
      ASSERT_TRUE(ops().add_fixed(entry["weights"][row], &out[row * d_model], d_model, index_["shift"], sums.data()));
    const json& sum = entry["sum_of_three_rows"];
    EXPECT_EQ(sums, test::read_array<std::int64_t>(kContract / sum["file"].get<std::string>()));
    std::vector<float> as_floats(d_model);
    ASSERT_TRUE(ops().from_fixed(sums.data(), d_model, index_["shift"], as_floats.data()));
    EXPECT_SAME_FLOATS(as_floats, floats(sum["as_f32"]));
  }
}

TEST_P(OpsVectors, RouterIdsInSelectionOrderAndWeights) {
  const json index = contract_index();
  ASSERT_FALSE(index["trunk"]["router"].empty());
  for (const json& entry : index["trunk"]["router"]) {
    SCOPED_TRACE(entry.dump());
    const std::vector<float> logits = floats(entry["logits"]);
    const std::vector<float> bias = entry["bias"].is_null() ? std::vector<float>() : floats(entry["bias"]);
    kernels::RouterRule rule;
    rule.kind = entry["kind"] == "softmax" ? kernels::RouterKind::kSoftmax : kernels::RouterKind::kSigmoid;
    rule.top_k = entry["top_k"];
    rule.selection_bias = bias.empty() ? nullptr : bias.data();
    rule.clamp_sum = entry["clamp"];
    if (!entry["scale"].is_null()) rule.scale = entry["scale"].get<float>();
    std::vector<float> scratch(2 * logits.size()), weights(rule.top_k);
    std::vector<std::uint16_t> ids(rule.top_k);
    kernels::route(logits.data(), logits.size(), rule, ops().exp, scratch.data(), ids.data(), weights.data());
    EXPECT_EQ(ids, entry["ids"].get<std::vector<std::uint16_t>>());
    EXPECT_SAME_FLOATS(weights, floats(entry["weights"]));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, OpsVectors, testing::ValuesIn(test::tables_of_this_machine()),
                         [](const auto& param_info) { return test::isa_identifier(param_info.param.isa); });

}  // namespace
}  // namespace terrace
