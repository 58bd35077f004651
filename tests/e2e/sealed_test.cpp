// Sealed data connections through the real programs: the same bits as ever, what status says of them, and that one end
// which seals and one that does not are told so.
#include <gmock/gmock.h>

#include "kernels/cpu/isa.h"
#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::test {
namespace sealed_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFailureCode = 1;

kernels::Isa next_to_narrowest() {
  const auto isas = kernels::detect_cpu_features().isas();
  return isas[isas.size() > 1 ? 1 : 0];
}

class SealedLinks : public ::testing::Test {
 protected:
  std::string secret() const { return secret_options(dir_, 1).secret_file.string(); }
  // A prompt of more than one batch and a few tokens, on these nodes.
  static json story(const std::vector<std::string>& flags, const std::vector<const NodeProcess*>& nodes,
                    const std::string& share) {
    Arguments all = {"generate", "--quiet", "--json",  "-p", "Once upon a time there was a small machine",
                     "-n",       "8",       "--batch", "8"};
    for (const NodeProcess* node : nodes) {
      all.push_back("--node");
      all.push_back(node->address());
    }
    if (!share.empty()) {
      all.push_back("--share");
      all.push_back(share);
    }
    all.insert(all.end(), flags.begin(), flags.end());
    return run_terrace_json(all);
  }
  const TempDir dir_;
};

TEST_F(SealedLinks, NodesOfDifferentInstructionSets_TheSameBitsSealedAndPlain) {
  const json alone = story({"--isa", "scalar"}, {}, "");
  const std::string file = secret();
  for (const bool plain : {false, true}) {
    std::vector<std::string> flags = {"--secret-file", file};
    if (plain) flags.push_back("--plain-data");
    std::vector<std::string> scalar = flags, narrow = flags;
    scalar.insert(scalar.end(), {"--isa", "scalar"});
    narrow.insert(narrow.end(), {"--isa", kernels::name(next_to_narrowest())});
    NodeProcess first(scalar), second(narrow);
    const std::string share = "host=0-9," + first.address() + "=10-20," + second.address() + "=21-31";
    const json run = story(flags, {&first, &second}, share);
    EXPECT_EQ(run["tokens"], alone["tokens"]) << (plain ? "plain" : "sealed");
    EXPECT_EQ(run["logits_xxh3"], alone["logits_xxh3"]) << (plain ? "plain" : "sealed");
    EXPECT_GT(run["legs"][1]["batches"], 0);
    EXPECT_GT(run["legs"][2]["batches"], 0);
    first.stop();
    second.stop();
    EXPECT_THAT(first.process().err(), HasSubstr(plain ? "its data connections: plain" : "its data connections: "));
    if (!plain) {
      EXPECT_THAT(first.process().err(), ::testing::AnyOf(HasSubstr("data connections: aes-256-gcm"),
                                                          HasSubstr("data connections: chacha20-poly1305")));
    }
  }
}

TEST_F(SealedLinks, OneEndSealsAndTheOtherDoesNot_RefusedByName) {
  const std::string file = secret();
  for (const bool node_plain : {false, true}) {
    std::vector<std::string> node_flags = {"--secret-file", file};
    if (node_plain) node_flags.push_back("--plain-data");
    NodeProcess node(node_flags);
    Arguments generate = {"generate", "--quiet", "-p",           "Once",          "-n",
                          "1",        "--node",  node.address(), "--secret-file", file};
    if (!node_plain) generate.push_back("--plain-data");
    const Outcome run = run_terrace(generate, kFailureCode);
    EXPECT_THAT(run.err,
                AllOf(HasSubstr(node.address()), HasSubstr("the coordinator takes"), HasSubstr("start both alike")));
  }
}

// ---- beyond this machine
// ----------------------------------------------------------------------------------------------

const auto* const kSealedNetwork = own_network();

// The real node on another machine, by megabits a second.
class SealedLossyLink : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    const std::string lacks = lacking({"root", "netns", "tbf", "nft"});
    if (!lacks.empty()) GTEST_SKIP() << lacks;
  }
  const TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Links, SealedLossyLink, ::testing::Values(1000u, 2500u),
                         [](const auto& test) { return std::to_string(test.param) + "Mbit"; });

TEST_P(SealedLossyLink, OnePacketInAHundredIsLost_SameTokens) {
  Machine machine(4);
  machine.set_rate(GetParam());
  machine.set_loss(100);
  const Arguments security = {"--secret-file", secret_options(dir_, 1).secret_file.string()};
  Arguments on_the_machine = {"--listen", machine.ipv4() + ":0"};
  on_the_machine.insert(on_the_machine.end(), security.begin(), security.end());
  NodeProcess node(on_the_machine, machine.network());
  const auto generate = [](const Arguments& more) {
    Arguments all = {"generate", "--quiet", "--json",  "-p", "Once upon a time there was a small machine",
                     "-n",       "32",      "--batch", "4"};
    all.insert(all.end(), more.begin(), more.end());
    return run_terrace_json(all);
  };
  const json alone = generate({});
  const json run = generate({"--node", node.address(), security[0], security[1]});
  EXPECT_EQ(run["tokens"], alone["tokens"]);
  EXPECT_EQ(run["logits_xxh3"], alone["logits_xxh3"]);
  EXPECT_GT(run["legs"][1]["batches"], 0);
  EXPECT_GT(machine.lost(), 0u) << "nothing was dropped: the test shows nothing";
  EXPECT_THAT(node.process().err(), ::testing::AnyOf(HasSubstr("data connections: aes-256-gcm"),
                                                     HasSubstr("data connections: chacha20-poly1305")));
  node.stop();
}

}  // namespace sealed_test
}  // namespace terrace::test
