// Placement never changes a token: the same tokens and logits, bit for bit, wherever experts are computed. The
// reference is a run without nodes, by the scalar kernels, one thread, prompt batches of 512.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "kernels/cpu/isa.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_process.h"
#include "tests/unit/kernels/cpu/isa_names.h"

namespace terrace {
namespace placement_gate_test {

using kernels::Isa;
using test::GateRun;
using test::NodeProcess;

constexpr std::uint32_t kExperts = 32;  // of each layer of the demo model
constexpr std::uint32_t kLayers = 6;
constexpr std::uint64_t kShortTokens = 12;  // what exact-f16.json has
constexpr std::size_t kLongPrompt = 520;    // more than the largest batch
constexpr std::uint64_t kLongTokens = 8;

Isa widest_isa() { return kernels::detect_cpu_features().isas().back(); }

// A prompt of the vectors, with the tokens and hashes that an independent implementation gives.
struct ExactCase {
  std::string name;
  std::vector<std::int32_t> prompt;
  GateRun expected;
};

std::vector<ExactCase> exact_cases() {
  std::ifstream in(test::data_dir() / "demo" / "exact-f16.json");
  const nlohmann::json json = nlohmann::json::parse(in);
  std::vector<ExactCase> cases;
  for (const auto& [name, values] : json.at("cases").items()) {
    ExactCase& c = cases.emplace_back();
    c.name = name;
    c.prompt = values.at("prompt").get<std::vector<std::int32_t>>();
    c.expected.tokens = values.at("tokens").get<std::vector<std::int32_t>>();
    for (const std::string hash : values.at("logits_xxh3"))
      c.expected.logits_xxh3.push_back(std::stoull(hash, nullptr, 16));
  }
  return cases;
}

ExactCase exact_case(const std::string& name) {
  std::vector<ExactCase> cases = exact_cases();
  for (ExactCase& c : cases)
    if (c.name == name) return std::move(c);
  throw std::runtime_error("exact-f16.json has no case " + name);
}

app::ModelOptions reference_options() {
  app::ModelOptions options = test::gate_options();
  options.isa = Isa::kScalar;
  options.threads = 1;
  options.batch = 512;
  return options;
}

void expect_same(const GateRun& expected, const GateRun& got) {
  EXPECT_EQ(test::difference(expected, got), std::nullopt);
  EXPECT_EQ(got.sums_xxh3.size(), got.tokens.size());
  EXPECT_EQ(got.pairs(), got.expected_pairs) << "a pair was lost, or computed twice";
}

// The comparison itself: a sum that logits do not tell of is seen.
TEST(PlacementGate, OneOtherSum_IsADifference) {
  const GateRun run{.tokens = {1, 2}, .logits_xxh3 = {3, 4}, .sums_xxh3 = {5, 6}, .legs = {}};
  GateRun other = run;
  EXPECT_EQ(test::difference(run, other), std::nullopt);
  ++other.sums_xxh3[1];
  EXPECT_NE(test::difference(run, other), std::nullopt);
}

// Several nodes, and options that name them.
class Nodes {
 public:
  NodeProcess& start(const std::vector<std::string>& flags) { return nodes_.emplace_back(flags); }
  const std::string& address(std::size_t i) const { return nodes_[i].address(); }

  // The first `n` nodes with a share; "@0" in `share` stands for the first node's address.
  app::ModelOptions options(std::size_t n, std::string share = "") const {
    app::ModelOptions options = test::gate_options();
    for (std::size_t i = 0; i < n; ++i) {
      options.nodes.push_back(address(i));
      const std::string mark = fmt::format("@{}", i);
      for (std::size_t at = share.find(mark); at != std::string::npos; at = share.find(mark))
        share.replace(at, mark.size(), address(i));
    }
    options.share = std::move(share);
    return options;
  }
  void stop() {
    for (NodeProcess& node : nodes_) node.stop();
  }

 private:
  std::deque<NodeProcess> nodes_;
};

// Experts of host and `n` nodes in turn, begun at `shift`: leg i owns e where (e + shift) mod (n + 1) is i.
std::string every_nth(std::size_t leg, std::size_t n_legs, std::size_t shift) {
  std::string ids;
  for (std::size_t expert = 0; expert < kExperts; ++expert)
    if ((expert + shift) % n_legs == leg) ids += fmt::format("{}{}", ids.empty() ? "" : ",", expert);
  return ids;
}
std::string interleaved(std::size_t n_nodes, std::size_t shift = 0) {
  std::string share = "host=" + every_nth(0, n_nodes + 1, shift);
  for (std::size_t i = 0; i < n_nodes; ++i) share += fmt::format(",@{}={}", i, every_nth(i + 1, n_nodes + 1, shift));
  return share;
}

// The same, shifted by one from layer to layer, as a file.
void write_share_file(const std::filesystem::path& path, const Nodes& nodes, std::size_t n_nodes) {
  nlohmann::json layers = nlohmann::json::array();
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    nlohmann::json entry = {{"host", every_nth(0, n_nodes + 1, layer)}};
    for (std::size_t i = 0; i < n_nodes; ++i) entry[nodes.address(i)] = every_nth(i + 1, n_nodes + 1, layer);
    layers.push_back(entry);
  }
  test::write_file(path, nlohmann::json({{"layers", layers}}).dump());
}

const std::vector<std::string> kOwnModel = {"--model", test::demo_model().string()};

// ---- the reference itself

TEST(PlacementGate, ReferenceRun_EqualsTheIndependentVectors) {
  for (const char* name : {"story_start", "one_token"}) {
    SCOPED_TRACE(name);
    const ExactCase c = exact_case(name);
    expect_same(c.expected, test::gate_run(reference_options(), c.prompt, kShortTokens));
  }
}

TEST(PlacementGate, NoNodeWidestIsa_EqualsTheIndependentVectors) {
  for (const ExactCase& c : exact_cases()) {
    SCOPED_TRACE(c.name);
    expect_same(c.expected, test::gate_run(test::gate_options(), c.prompt, kShortTokens));
  }
}

// ---- each placement on prompts whose answers are known from elsewhere

TEST(PlacementGate, OneNodeWithEverything_HostOwnsNone) {
  Nodes nodes;
  nodes.start({});
  for (const ExactCase& c : exact_cases()) {
    SCOPED_TRACE(c.name);
    const GateRun run = test::gate_run(nodes.options(1, "@0=0-31"), c.prompt, kShortTokens);
    expect_same(c.expected, run);
    ASSERT_EQ(run.legs.size(), 2u);
    EXPECT_EQ(run.legs[0].experts, 0u);
    EXPECT_EQ(run.legs[0].pairs, 0u);
    EXPECT_EQ(run.legs[1].experts, kExperts * kLayers);
  }
  nodes.stop();
}

TEST(PlacementGate, TwoNodesEvenShare_SameBits) {
  Nodes nodes;
  nodes.start({});
  nodes.start({});
  for (const ExactCase& c : exact_cases()) {
    SCOPED_TRACE(c.name);
    app::ModelOptions options = nodes.options(2);
    options.overlap = arch::Overlap::kOn;  // these prompts are too short for the rule
    const GateRun run = test::gate_run(options, c.prompt, kShortTokens);
    expect_same(c.expected, run);
    ASSERT_EQ(run.legs.size(), 3u);
    for (const test::LegWork& leg : run.legs) EXPECT_GT(leg.pairs, 0u) << leg.name;
  }
  nodes.stop();
}

TEST(PlacementGate, FiveNodesInterleavedThenShifted_SameBits) {
  Nodes nodes;
  for (int i = 0; i < 5; ++i) nodes.start({"--threads", "1"});
  const ExactCase c = exact_case("odd_bytes");
  for (std::size_t shift = 0; shift < 3; ++shift) {  // the share changes between runs, the nodes stay
    SCOPED_TRACE(shift);
    const GateRun run = test::gate_run(nodes.options(5, interleaved(5, shift)), c.prompt, kShortTokens);
    expect_same(c.expected, run);
    ASSERT_EQ(run.legs.size(), 6u);
    for (const test::LegWork& leg : run.legs) EXPECT_GT(leg.pairs, 0u) << leg.name;
  }
  nodes.stop();
}

TEST(PlacementGate, ShareFileWithAnEntryForEachLayer_SameBits) {
  const test::TempDir dir;
  Nodes nodes;
  for (int i = 0; i < 3; ++i) nodes.start({"--threads", "1"});
  write_share_file(dir / "share.json", nodes, 3);
  const ExactCase c = exact_case("chat");
  expect_same(c.expected, test::gate_run(nodes.options(3, (dir / "share.json").string()), c.prompt, kShortTokens));
  nodes.stop();
}

TEST(PlacementGate, WeightsFromTheNodesOwnFileOrOverTheWire_SameBits) {
  Nodes nodes;
  nodes.start(kOwnModel);
  nodes.start({});
  const ExactCase c = exact_case("dialogue");
  const GateRun run = test::gate_run(nodes.options(2, "host=0-9,@0=10-20,@1=21-31"), c.prompt, kShortTokens);
  expect_same(c.expected, run);
  EXPECT_EQ(run.legs[1].weight_bytes_sent, 0u);
  EXPECT_GT(run.legs[2].weight_bytes_sent, 0u);
  // Each alone, too.
  expect_same(c.expected, test::gate_run(nodes.options(1, "@0=0-31"), c.prompt, kShortTokens));
  nodes.stop();
}

TEST(PlacementGate, OneTwoAndFourThreads_SameBits) {
  const ExactCase c = exact_case("odd_bytes");
  for (const std::uint32_t threads : {1u, 2u, 4u}) {
    SCOPED_TRACE(threads);
    Nodes nodes;
    nodes.start({"--threads", std::to_string(threads)});
    app::ModelOptions options = nodes.options(1, "host=0-15,@0=16-31");
    options.threads = threads;
    expect_same(c.expected, test::gate_run(options, c.prompt, kShortTokens));
    nodes.stop();
  }
}

// ---- instruction sets on the two sides

class PlacementGateIsas : public testing::TestWithParam<std::pair<Isa, Isa>> {};  // coordinator, node

TEST_P(PlacementGateIsas, CoordinatorAndNode_EqualTheScalarRun) {
  const auto [coordinator, node] = GetParam();
  const ExactCase c = exact_case("story_start");
  Nodes nodes;
  nodes.start({"--isa", kernels::name(node)});
  app::ModelOptions options = nodes.options(1, "host=0-15,@0=16-31");
  options.isa = coordinator;
  const GateRun run = test::gate_run(options, c.prompt, kShortTokens);
  expect_same(c.expected, run);
  expect_same(test::gate_run(reference_options(), c.prompt, kShortTokens), run);
  nodes.stop();
}

std::vector<std::pair<Isa, Isa>> isa_pairs() {
  std::vector<std::pair<Isa, Isa>> pairs;
  for (const Isa coordinator : kernels::detect_cpu_features().isas())
    for (const Isa node : kernels::detect_cpu_features().isas()) pairs.emplace_back(coordinator, node);
  return pairs;
}
INSTANTIATE_TEST_SUITE_P(AllIsas, PlacementGateIsas, testing::ValuesIn(isa_pairs()), [](const auto& test) {
  return fmt::format("coordinator_{}_node_{}", test::isa_identifier(test.param.first),
                     test::isa_identifier(test.param.second));
});

// ---- a prompt longer than the largest batch

struct LongRun {
  const char* name;
  std::size_t nodes;
  std::string share;
  std::uint32_t batch;
  std::uint32_t threads;
  arch::Overlap overlap = arch::Overlap::kAuto;
};

std::vector<LongRun> long_runs() {
  std::vector<LongRun> runs = {{"no node", 0, "", 512, 1},
                               {"one node with everything", 1, "@0=0-31", 512, 2},
                               {"three nodes, even", 3, "", 512, 4}};
  // Every batch size with and without nodes; every share with a small batch and a large one.
  runs.push_back({"no node, batches of one", 0, "", 1, 2});
  runs.push_back({"no node, small batches", 0, "", 64, 2});
  for (const std::uint32_t batch : {1u, 7u}) {
    runs.push_back({"two nodes", 2, "host=0-9,@0=10-20,@1=21-31", batch, 1, arch::Overlap::kOn});
  }
  for (const std::uint32_t batch : {7u, 512u}) {
    runs.push_back({"five nodes, interleaved", 5, interleaved(5), batch, 2});
    runs.push_back(
        {"five nodes, another share", 5, interleaved(5, 2), batch == 7 ? 64 : batch, 1, arch::Overlap::kOff});
  }
  return runs;
}

// One test, since the scalar reference of a long prompt is most of its time: it is computed beside the runs.
TEST(PlacementGate, LongPrompt_SameBitsForEveryPlacementBatchAndThreadCount) {
  if (widest_isa() == Isa::kScalar) GTEST_SKIP() << "with scalar kernels alone these runs take many minutes";
  const std::vector<std::int32_t> prompt = test::corpus_prompt(kLongPrompt);
  auto reference =
      std::async(std::launch::async, [&] { return test::gate_run(reference_options(), prompt, kLongTokens); });
  Nodes nodes;
  for (int i = 0; i < 5; ++i) nodes.start(i % 2 == 0 ? kOwnModel : std::vector<std::string>{"--threads", "1"});
  const std::vector<LongRun> cases = long_runs();
  std::vector<GateRun> runs;
  for (const LongRun& c : cases) {
    app::ModelOptions options = nodes.options(c.nodes, c.share);
    options.batch = c.batch;
    options.threads = c.threads;
    options.isa = widest_isa();
    options.overlap = c.overlap;
    runs.push_back(test::gate_run(options, prompt, kLongTokens));
  }
  nodes.stop();
  const GateRun expected = reference.get();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}, batches of {}, {} threads, overlap {}", cases[i].name, cases[i].batch,
                             cases[i].threads, arch::name(cases[i].overlap)));
    expect_same(expected, runs[i]);
  }
}

}  // namespace placement_gate_test
}  // namespace terrace
