// Whole models against float64 arithmetic that shares nothing with ours: tests/data/{tiny,demo}/cases.json, within the
// bands that the READMEs beside them derive.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace {
namespace bands_test {

using test::ModelUnderTest;
using test::Sequence;

arch::TrunkOptions options_of(kernels::Activations activations) {
  arch::TrunkOptions options;
  options.activations = activations;
  options.kv = activations == kernels::Activations::kF32 ? kernels::KvType::kF32 : kernels::KvType::kF16;
  options.context = 256;
  return options;
}

double log_sum_exp(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

// What one prompt gave: logits of every position, and the choices of the last position in each layer.
struct Computed {
  std::vector<float> logits;
  std::vector<std::vector<std::uint16_t>> experts;
  std::vector<std::vector<float>> weights;
  std::size_t vocabulary = 0;

  std::span<const float> position(std::size_t i) const { return std::span(logits).subspan(i * vocabulary, vocabulary); }
};

Computed run(ModelUnderTest& model, const std::vector<std::int32_t>& tokens) {
  Computed out;
  out.vocabulary = model.info().vocabulary;
  Sequence sequence(model.trunk());
  model.trunk().set_trace([&](const arch::LayerTrace& t) {
    if (t.row + 1 != tokens.size()) return;
    out.experts.emplace_back(t.experts.begin(), t.experts.end());
    out.weights.emplace_back(t.weights.begin(), t.weights.end());
  });
  out.logits = sequence.feed(tokens, tokens.size(), true);
  model.trunk().set_trace(nullptr);
  return out;
}

struct Deviation {
  double worst = 0;
  double sum = 0;
  std::size_t n = 0;
  void add(double difference) {
    worst = std::max(worst, std::fabs(difference));
    sum += std::fabs(difference);
    ++n;
  }
  double mean() const { return sum / static_cast<double>(n); }
};

// Of listed logits and of the logsumexp.
struct Deviations {
  Deviation top, logsumexp;
  double largest_logit = 0;

  void add(std::span<const float> logits, const nlohmann::json& position) {
    logsumexp.add(log_sum_exp(logits) - position["logsumexp"].get<double>());
    for (const auto& entry : position["top"]) {
      top.add(logits[entry[0].get<std::size_t>()] - entry[1].get<double>());
      largest_logit = std::max(largest_logit, std::fabs(entry[1].get<double>()));
    }
  }
};

Deviations compare(const Computed& got, const nlohmann::json& positions) {
  Deviations d;
  for (std::size_t i = 0; i < positions.size(); ++i) d.add(got.position(i), positions[i]);
  return d;
}

// The first n_tokens greedy tokens equal up to the first step whose gap between the two best is below `gap`.
void expect_greedy(ModelUnderTest& model, const nlohmann::json& c, double gap, std::size_t n_tokens) {
  Sequence sequence(model.trunk());
  std::vector<std::int32_t> expected = c["greedy"]["tokens"];
  expected.resize(std::min(expected.size(), n_tokens));
  const auto got = test::greedy(sequence, std::vector<std::int32_t>(c["tokens"]), 64, expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got.tokens[i] == expected[i]) continue;
    EXPECT_LT(c["greedy"]["gap"][i].get<double>(), gap) << "greedy step " << i;
    return;
  }
}

void expect_experts(const Computed& got, const nlohmann::json& layers, double margin) {
  ASSERT_EQ(got.experts.size(), layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer]["gap_logit"].get<double>() <= margin) continue;
    auto wanted = layers[layer]["experts"].get<std::vector<std::uint16_t>>();
    auto experts = got.experts[layer];
    std::ranges::sort(wanted);
    std::ranges::sort(experts);
    EXPECT_EQ(experts, wanted) << "layer " << layer;
  }
}

class TinyBand : public testing::TestWithParam<std::string> {};

// Float activations over the same weights: only f32 rounding is left, and no margin is near it.
TEST_P(TinyBand, FloatActivations_WithinOneInTenThousandOfFloat64) {
  test::Backwards parallel;
  ModelUnderTest model(test::tiny_model(GetParam()), options_of(kernels::Activations::kF32), parallel);
  const nlohmann::json all = test::read_json(test::data_dir() / "tiny" / "cases.json");
  for (const auto& [name, c] : all["files"][GetParam() + ".gguf"]["cases"].items()) {
    SCOPED_TRACE(name);
    const Computed got = run(model, c["tokens"]);
    for (std::size_t i = 0; i < c["positions"].size(); ++i) {
      Deviations d;
      d.add(got.position(i), c["positions"][i]);
      EXPECT_LE(std::max(d.top.worst, d.logsumexp.worst), 1e-4 * d.largest_logit) << "position " << i;
    }
    const std::vector<double> last = c["last_logits"];
    ASSERT_EQ(last.size(), got.vocabulary);
    const auto largest = std::fabs(*std::ranges::max_element(last, {}, [](double v) { return std::fabs(v); }));
    for (std::size_t i = 0; i < last.size(); ++i)
      EXPECT_NEAR(got.position(c["tokens"].size() - 1)[i], last[i], 1e-4 * largest);
    ASSERT_EQ(got.experts.size(), c["router_last"].size());
    for (std::size_t layer = 0; layer < got.experts.size(); ++layer) {
      EXPECT_EQ(got.experts[layer], c["router_last"][layer]["experts"].get<std::vector<std::uint16_t>>());
      for (std::size_t k = 0; k < got.weights[layer].size(); ++k)
        EXPECT_NEAR(got.weights[layer][k], c["router_last"][layer]["weights"][k].get<double>(), 1e-4);
    }
    expect_greedy(model, c, 0, 24);
  }
}
INSTANTIATE_TEST_SUITE_P(Files, TinyBand, testing::Values("tiny-q8_0", "tiny-mix"),
                         [](const auto& test) { return test.param == "tiny-mix" ? "mix" : "q8_0"; });

TEST(DemoBand, FloatActivations_WithinOneInAThousandOfFloat64) {
  Serial serial;
  ModelUnderTest model(test::demo_model(), options_of(kernels::Activations::kF32), serial);
  const nlohmann::json all = test::read_json(test::data_dir() / "demo" / "cases.json");
  for (const auto& [name, c] : all["cases"].items()) {
    SCOPED_TRACE(name);
    const Computed got = run(model, c["tokens"]);
    const Deviations d = compare(got, c["positions"]);
    EXPECT_LE(d.top.worst, 1e-3);
    EXPECT_LE(d.logsumexp.worst, 1e-3);
    expect_experts(got, c["router_last"], 1e-5);
    expect_greedy(model, c, 1e-3, 8);  // dequantising every row for every token takes its time
  }
}

TEST(DemoBand, QuantisedActivations_WithinTheBandOfInt8) {
  Serial serial;
  ModelUnderTest model(test::demo_model(), options_of(kernels::Activations::kQuantised), serial);
  const nlohmann::json all = test::read_json(test::data_dir() / "demo" / "cases.json");
  for (const auto& [name, c] : all["cases"].items()) {
    SCOPED_TRACE(name);
    const Computed got = run(model, c["tokens"]);
    const Deviations d = compare(got, c["positions"]);
    EXPECT_LE(d.top.mean(), 0.2);
    EXPECT_LE(d.logsumexp.mean(), 0.2);
    expect_experts(got, c["router_last"], 0.3);
    expect_greedy(model, c, 0.5, 48);
  }
}

}  // namespace bands_test
}  // namespace terrace
