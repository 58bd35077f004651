// Programs of different instruction sets in one run, as when machines of a fleet differ in age: equal bits, over sealed
// links.
#include <gtest/gtest.h>

#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"

namespace terrace {
namespace build_skew_test {

using test::gate_options;
using test::gate_run;
using test::NodeProcess;

struct Skew {
  const char* name;
  std::filesystem::path model;
  const char* share;  // of the two nodes, as %1 and %2
  std::uint32_t batch;
};

// What gtest, and with it ctest, shows of a parameter.
std::ostream& operator<<(std::ostream& out, const Skew& skew) { return out << skew.name; }

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

  const test::TempDir dir;
  const std::filesystem::path secret = dir / "secret";
  test::write_file(secret, std::string(64, '3') + "\n");
  std::filesystem::permissions(secret, std::filesystem::perms::owner_read);
  const auto flags = [&](const char* isa) {
    return std::vector<std::string>{"--isa", isa, "--threads", "1", "--secret-file", secret.string()};
  };
  NodeProcess avx2(flags("avx2")), scalar(flags("scalar"));
  EXPECT_NE(avx2.process().err().find("instruction set avx2 (--isa);"), std::string::npos) << avx2.process().err();
  EXPECT_NE(scalar.process().err().find("instruction set scalar (--isa);"), std::string::npos)
      << scalar.process().err();
  app::ModelOptions options = gate_options(GetParam().model);
  options.security.secret_file = secret;
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

}  // namespace build_skew_test
}  // namespace terrace
