// Whole models to the bit: tests/data/{demo,tiny}/exact-*.json say what an independent implementation of
// docs/numerics.md gives.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace {
namespace exact_test {

using test::Greedy;
using test::ModelUnderTest;
using test::Sequence;

struct Case {
  std::string model, exact;
  kernels::KvType kv;
  kernels::Isa isa;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const kernels::Isa isa : kernels::detect_cpu_features().isas()) {
    all.push_back({"demo", "demo/exact-f16.json", kernels::KvType::kF16, isa});
    all.push_back({"demo", "demo/exact-f32.json", kernels::KvType::kF32, isa});
    all.push_back({"tiny-q8_0", "tiny/exact-tiny-q8_0.json", kernels::KvType::kF16, isa});
    all.push_back({"tiny-mix", "tiny/exact-tiny-mix.json", kernels::KvType::kF16, isa});
  }
  return all;
}

std::filesystem::path path_of(const std::string& model) {
  return model == "demo" ? test::demo_model() : test::tiny_model(model);
}

arch::TrunkOptions options_of(const Case& c) {
  arch::TrunkOptions options;
  options.kv = c.kv;
  options.isa = c.isa;
  options.context = 256;
  options.max_streams = 8;
  return options;
}

class ExactModel : public testing::TestWithParam<Case> {};

// Layer by layer, what the trace says of one position.
std::vector<std::pair<std::vector<std::uint16_t>, std::string>> expected_trace(const nlohmann::json& layers) {
  std::vector<std::pair<std::vector<std::uint16_t>, std::string>> out;
  for (const auto& layer : layers) out.emplace_back(layer["experts"], layer["x_xxh3"]);
  return out;
}

// Of the demo model the scalar reference takes a tenth of a second a row: it has its short prompts here, and all of
// them in one test below.
nlohmann::json prompts_of(const Case& c) {
  nlohmann::json exact = test::read_json(test::data_dir() / c.exact).at("cases");
  if (c.model == "demo" && c.isa == kernels::Isa::kScalar) {
    const nlohmann::json all = std::exchange(exact, nlohmann::json::object());
    for (const auto& [name, expected] : all.items())
      if (expected["prompt"].size() <= 16) exact[name] = expected;
  }
  return exact;
}

TEST_P(ExactModel, TracesOfFirstAndLastPromptPosition_EqualTheReference) {
  test::Backwards parallel;
  ModelUnderTest model(path_of(GetParam().model), options_of(GetParam()), parallel);
  const nlohmann::json exact = prompts_of(GetParam());
  ASSERT_GE(exact.size(), 3u);
  for (const auto& [name, expected] : exact.items()) {
    SCOPED_TRACE(name);
    const std::vector<std::int32_t> prompt = expected["prompt"];
    Sequence sequence(model.trunk());
    std::map<std::size_t, std::vector<std::pair<std::vector<std::uint16_t>, std::string>>> rows;
    model.trunk().set_trace([&](const arch::LayerTrace& t) {
      rows[t.row].emplace_back(std::vector(t.experts.begin(), t.experts.end()), test::xxh3(t.x));
    });
    sequence.feed(prompt, prompt.size());
    model.trunk().set_trace(nullptr);
    EXPECT_EQ(rows.at(0), expected_trace(expected["trace_first_position"]));
    const auto& last = expected["trace_last_prompt_position"];  // empty where the prompt is one token
    EXPECT_TRUE(last.empty() || rows.at(prompt.size() - 1) == expected_trace(last));
  }
}

// The scalar reference takes seconds a run of the demo model: one batch size there, as the tiny models have them all.
std::vector<std::size_t> batches_of(const Case& c) {
  if (c.model == "demo" && c.isa == kernels::Isa::kScalar) return {7};
  return {1, 7, 64, 512};
}

void expect_exact(ModelUnderTest& model, const nlohmann::json& exact, std::size_t batch) {
  for (const auto& [name, expected] : exact.items()) {
    SCOPED_TRACE(name + ", prompt batch " + std::to_string(batch));
    const Greedy wanted = {expected["tokens"], expected["logits_xxh3"]};
    Sequence sequence(model.trunk());
    const Greedy got =
        test::greedy(sequence, std::vector<std::int32_t>(expected["prompt"]), batch, wanted.tokens.size());
    EXPECT_EQ(got.tokens, wanted.tokens);
    EXPECT_EQ(got.hashes, wanted.hashes);
  }
}

TEST_P(ExactModel, TokensAndLogitHashes_EqualTheReferenceForEveryPromptBatch) {
  const nlohmann::json exact = test::read_json(test::data_dir() / GetParam().exact).at("cases");
  ASSERT_GE(exact.size(), 3u);
  Serial serial;
  ModelUnderTest model(path_of(GetParam().model), options_of(GetParam()), serial);
  for (const std::size_t batch : batches_of(GetParam())) expect_exact(model, exact, batch);
}

TEST_P(ExactModel, WorkersInAnyOrderAndRowsInHalves_GiveTheSameHashes) {
  const nlohmann::json exact = prompts_of(GetParam());
  test::Backwards backwards;
  arch::TrunkOptions options = options_of(GetParam());
  options.overlap = arch::Overlap::kOn;
  ModelUnderTest model(path_of(GetParam().model), options, backwards);
  expect_exact(model, exact, 512);
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.model + "_" + (test.param.kv == kernels::KvType::kF16 ? "f16_" : "f32_") +
                     kernels::name(test.param.isa);
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(AllIsas, ExactModel, testing::ValuesIn(cases()), name_of);

// The gate is shown to fail: one bit of one weight of one expert that the prompt uses.
TEST(ExactModelGate, PlantedOneBitError_ChangesTheHash) {
  const nlohmann::json exact = test::read_json(test::data_dir() / "tiny/exact-tiny-mix.json").at("cases").at("text");
  const std::vector<std::int32_t> prompt = exact["prompt"];
  const auto path = test::tiny_model("tiny-mix");
  Serial serial;
  ModelUnderTest sound(path, {}, serial);
  EXPECT_EQ(test::xxh3(Sequence(sound.trunk()).feed(prompt, 64)), exact["logits_xxh3"][0]);
  const auto* down = test::value_of(sound.file().get_tensor("blk.0.ffn_down_exps.weight"));
  const std::uint64_t expert = exact["trace_last_prompt_position"][0]["experts"][0];
  const std::uint64_t at = down->bytes / down->shape[2] * expert + 2;  // the first weight of the expert's first block
  const std::byte flipped = sound.file().data(*down)[at] ^ std::byte{1};
  ModelUnderTest wrong(test::copy_with(path, down->name, at, {&flipped, 1}), {}, serial);
  EXPECT_NE(test::xxh3(Sequence(wrong.trunk()).feed(prompt, 64)), exact["logits_xxh3"][0]);
}

}  // namespace exact_test
}  // namespace terrace
