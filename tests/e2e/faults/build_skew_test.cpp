// Programs of different instruction sets in one run, as when machines of a fleet differ in age: equal bits.
#include <gtest/gtest.h>

#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"

namespace terrace {
namespace {

using test::gate_options;
using test::gate_run;
using test::NodeProcess;

struct Skew {
  const char* name;
  std::filesystem::path model;
  const char* share;  // of the two nodes, as %1 and %2
  std::uint32_t batch;
};

std::vector<Skew> skews() {
  const auto tiny = test::data_dir() / "tiny";
  return {{"TinyMix", tiny / "tiny-mix.gguf", "host=0-1,%1=2-4,%2=5-7", 4},
          {"TinyQ8", tiny / "tiny-q8_0.gguf", "host=0,%1=1,3,5,7,%2=2,4,6", 3},
          {"Demo", test::demo_model(), "host=0-15,%1=16-27,%2=28-31", 16}};
}

class BuildSkew : public testing::TestWithParam<Skew> {
 protected:
  void SetUp() override {
    const std::string lacking = test::lacking({"avx2", "avx512-vnni"});
    if (!lacking.empty()) GTEST_SKIP() << lacking;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, BuildSkew, testing::ValuesIn(skews()),
                         [](const auto& test) { return test.param.name; });

std::string with_names(std::string share, const std::string& first, const std::string& second) {
  share.replace(share.find("%1"), 2, first);
  return share.replace(share.find("%2"), 2, second);
}

TEST_P(BuildSkew, Avx512CoordinatorAvx2NodeScalarNode_SameBitsAsScalarAlone) {
  const std::vector<std::int32_t> prompt = {84, 104, 101, 32, 99, 97, 116, 32, 115, 97, 116};
  constexpr std::uint64_t kTokens = 8;
  app::ModelOptions alone = gate_options(GetParam().model);
  alone.isa = kernels::Isa::kScalar;
  const test::GateRun expected = gate_run(alone, prompt, kTokens);

  NodeProcess avx2({"--isa", "avx2", "--threads", "1"}), scalar({"--isa", "scalar", "--threads", "1"});
  EXPECT_EQ(avx2.status().at("isa"), "avx2");
  EXPECT_EQ(scalar.status().at("isa"), "scalar");
  app::ModelOptions options = gate_options(GetParam().model);
  options.isa = kernels::Isa::kAvx512Vnni;
  options.batch = GetParam().batch;
  options.nodes = {avx2.address(), scalar.address()};
  options.share = with_names(GetParam().share, avx2.address(), scalar.address());
  const test::GateRun run = gate_run(options, prompt, kTokens);
  EXPECT_EQ(test::difference(expected, run), std::nullopt);
  for (const test::LegWork& leg : run.legs) EXPECT_GT(leg.pairs, 0u) << leg.name;
  EXPECT_EQ(run.pairs(), run.expected_pairs);
  avx2.stop();
  scalar.stop();
}

}  // namespace
}  // namespace terrace
