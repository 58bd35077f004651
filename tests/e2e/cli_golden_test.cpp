// `terrace generate` against values that independent programs made: to the bit where the contract says so
// (exact-*.json), and against float64 within the bands of tests/data/{demo,tiny}/README.md.
#include <gtest/gtest.h>

#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace cli_golden_test {

using Ids = std::vector<std::int32_t>;

// A golden file, the texts of its prompts, and its model.
struct Exact {
  const char* name;
  const char* golden;
  const char* cases;
};

void PrintTo(const Exact& exact, std::ostream* out) { *out << exact.name; }

json texts_of(const Exact& exact, const std::string& model) {
  const json cases = read_json(data_dir() / exact.cases);
  return cases.contains("files") ? cases["files"][model]["cases"] : cases["cases"];
}

std::filesystem::path model_path(const Exact& exact, const std::string& model) {
  const auto beside = (data_dir() / exact.golden).parent_path() / model;
  return std::filesystem::exists(beside) ? beside : demo_model();
}

class ExactGolden : public ::testing::TestWithParam<Exact> {};

// Tokens and the hash of each step's logits, up to an end token.
TEST_P(ExactGolden, GenerateGivesItsTokensAndLogits) {
  const json golden = read_json(data_dir() / GetParam().golden);
  const std::string model = golden["model"];
  const json texts = texts_of(GetParam(), model);
  for (const auto& [name, expected] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const Ids tokens = expected["tokens"];
    const json got = run_terrace_json({"generate", "--quiet", "--json", "-m", model_path(GetParam(), model).string(),
                                       "--kv", golden["kv"], "--max-tokens", std::to_string(tokens.size()), "--prompt",
                                       texts.at(name)["text"]});
    EXPECT_EQ(got["timings"]["prompt_tokens"], expected["prompt"].size());
    const auto n = got["tokens"].size();
    ASSERT_TRUE(n == tokens.size() || got["stop_reason"] == "eos");
    EXPECT_EQ(got["tokens"].get<Ids>(), Ids(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)));
    ASSERT_EQ(got["logits_xxh3"].size(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(got["logits_xxh3"][i], expected["logits_xxh3"][i]) << "step " << i;
    EXPECT_EQ(got["numerics_version"], golden["numerics_version"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExactGolden,
                         ::testing::Values(Exact{"DemoF16", "demo/exact-f16.json", "demo/cases.json"},
                                           Exact{"DemoF32", "demo/exact-f32.json", "demo/cases.json"},
                                           Exact{"TinyMix", "tiny/exact-tiny-mix.json", "tiny/cases.json"},
                                           Exact{"TinyQ8_0", "tiny/exact-tiny-q8_0.json", "tiny/cases.json"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Greedy tokens equal `greedy` up to the first step whose gap between the two best logits is below `gap`; what follows
// a near-tie says nothing. Returns how many steps were compared.
std::size_t expect_greedy(const json& got, const json& greedy, double gap) {
  const Ids expected = greedy["tokens"], tokens = got["tokens"];
  std::size_t n = 0;
  while (n < expected.size() && greedy["gap"][n].get<double>() >= gap) ++n;
  EXPECT_GE(tokens.size(), n);
  for (std::size_t i = 0; i < std::min(n, tokens.size()); ++i)
    EXPECT_EQ(tokens[i], expected[i]) << "step " << i << ", gap " << greedy["gap"][i];
  return n;
}

json run_case(const json& prompt, const std::filesystem::path& model, const Arguments& flags) {
  const std::string n = std::to_string(prompt["greedy"]["tokens"].size());
  Arguments arguments = {"generate", "--quiet",      "--json",       "-m", model.string(),
                         "--prompt", prompt["text"], "--max-tokens", n};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return run_terrace_json(arguments);
}

// No gap is below 0.0025 here, and f32 rounding cannot reach that: all tokens are equal.
TEST(Float64Greedy, TinyModels_F32Activations_EveryTokenEqual) {
  const json files = read_json(data_dir() / "tiny" / "cases.json")["files"];
  for (const auto& [file, content] : files.items()) {
    for (const auto& [name, prompt] : content["cases"].items()) {
      SCOPED_TRACE(file + " " + name);
      const json got = run_case(prompt, data_dir() / "tiny" / file, {"--activations", "f32", "--kv", "f32"});
      EXPECT_EQ(got["tokens"], prompt["greedy"]["tokens"]);
    }
  }
}

// The first steps of each prompt, since f32 activations take much longer than quantised ones.
TEST(Float64Greedy, DemoModel_F32Activations_EqualUpToAGapOf1e3) {
  constexpr std::size_t kSteps = 16;
  const json cases = read_json(data_dir() / "demo" / "cases.json")["cases"];
  std::size_t compared = 0;
  for (json prompt : cases) {
    SCOPED_TRACE(prompt["text"]);
    json& tokens = prompt["greedy"]["tokens"];
    if (tokens.size() > kSteps) tokens.erase(tokens.begin() + kSteps, tokens.end());
    compared +=
        expect_greedy(run_case(prompt, demo_model(), {"--activations", "f32", "--kv", "f32"}), prompt["greedy"], 1e-3);
  }
  EXPECT_EQ(compared, 7 * kSteps + 15) << "no gap is below 1e-3, so every step counts";
}

// The first token of every prompt is compared too where its own gap is large enough.
TEST(Float64Greedy, DemoModel_Quantised_EqualUpToAGapOfHalf) {
  const json cases = read_json(data_dir() / "demo" / "cases.json")["cases"];
  std::size_t compared = 0;
  for (const auto& [name, prompt] : cases.items()) {
    SCOPED_TRACE(name);
    compared += expect_greedy(run_case(prompt, demo_model(), {}), prompt["greedy"], 0.5);
  }
  EXPECT_GT(compared, 0u);
}

}  // namespace cli_golden_test
}  // namespace terrace::test
