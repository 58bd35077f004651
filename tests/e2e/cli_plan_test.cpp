// `terrace plan` tells the truth: what it says is what nodes then reserve, and its advice works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace::test {
namespace cli_plan_test {

using ::testing::HasSubstr;

class Plan : public ::testing::Test {
 protected:
  Plan() { make_random_model({.layers = 3, .d_model = 256, .experts = 16, .ff = 256, .type = "q4_k_m"}, model_); }

  Arguments with_model(const char* command, const Arguments& flags) const {
    Arguments all = {command, "--quiet", "-m", model_.string()};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  json plan(const Arguments& flags, int exit_code = 0) const {
    Arguments all = with_model("plan", flags);
    all.emplace_back("--json");
    return json::parse(run_terrace(all, exit_code).out);
  }
  // Bytes that the node's sessions have reserved while a run with these flags computes.
  std::uint64_t reserved_by_a_run(const NodeProcess& node, const Arguments& flags) const {
    Arguments all = with_model("generate", {"--stream", "-p", "x", "-n", "800"});
    all.insert(all.end(), flags.begin(), flags.end());
    Process run(terrace(all));
    EXPECT_TRUE(eventually([&] { return !run.out().empty() || !run.running(); }));
    EXPECT_TRUE(run.running()) << run.err();
    const std::uint64_t reserved = node.reserved();
    EXPECT_EQ(run.wait().exit_code, 0);  // by itself: a run that is killed leaves its session to the lease
    return reserved;
  }

  const TempDir dir_;
  const std::filesystem::path model_ = dir_ / "model.gguf";
};

TEST_F(Plan, NeedsOfANode_AreWhatItThenReserves) {
  NodeProcess node({"--threads", "2"});
  const std::string& a = node.address();
  for (const Arguments& flags :
       {Arguments{"--node", a}, Arguments{"--node", a, "--batch", "7"}, Arguments{"--node", a, "--share", a + "=0-15"},
        Arguments{"--node", a, "--share", "host=0-9,11-15," + a + "=10", "--batch", "300"}}) {
    const json planned = plan(flags), legs = planned["legs"];
    expect_documented(planned, {"`plan --json`"}, {"worst_loss"});
    ASSERT_EQ(legs.size(), 2u);
    for (const json& leg : legs) expect_documented(leg, {"A leg's memory"});
    EXPECT_EQ(legs[1]["name"], a);
    EXPECT_TRUE(legs[1]["fits"]);
    EXPECT_EQ(node.reserved(), 0u) << "a plan takes nothing";
    EXPECT_EQ(legs[1]["needs_bytes"], reserved_by_a_run(node, flags));
  }
  node.stop();
}

// Audits compute beside the host leg, with scratch of their own; where nothing is checked there are none.
TEST_F(Plan, Audits_AreCountedInTheCoordinatorsNeeds) {
  NodeProcess node({"--threads", "1"});
  const auto needs = [&](const Arguments& more) {
    Arguments flags = {"--node", node.address(), "--threads", "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    return plan(flags)["legs"][0]["needs_bytes"].get<std::uint64_t>();
  };
  const std::uint64_t none = needs({"--audit", "0"}), some = needs({});
  EXPECT_GT(some, none);
  EXPECT_EQ(needs({"--audit", "1"}), some) << "of any share as many at once";
  // Two answers of 128 pairs of 256 floats at the least, and for each row a byte and its pairs.
  const std::uint64_t more_rows = needs({"--batch", "1024"}) - needs({"--batch", "1024", "--audit", "0"});
  EXPECT_GE(some - none, 2u * 128 * 256 * sizeof(float));
  EXPECT_GT(more_rows, some - none);
  node.stop();
}

TEST_F(Plan, ANodeThatIsTooSmall_IsToldWithNumbers_AndTheAdviceWorks) {
  const json roomy = [&] {
    NodeProcess node({"--ram", "512M", "--threads", "1"});
    return plan({"--node", node.address(), "--batch", "8", "--share", node.address() + "=0-15"})["legs"][1];
  }();
  // Room for about half of it.
  const std::uint64_t fixed = roomy["needs_bytes"].get<std::uint64_t>() - roomy["slab_bytes"].get<std::uint64_t>();
  const std::uint64_t ram = fixed + roomy["slab_bytes"].get<std::uint64_t>() / 2;
  NodeProcess node({"--ram", std::to_string(ram), "--threads", "1"});
  const std::string& a = node.address();
  const Arguments everything = {"--node", a, "--batch", "8", "--share", a + "=0-15"};
  const Outcome said = run_terrace(with_model("plan", everything), 1);
  EXPECT_THAT(said.out, HasSubstr("does not fit"));
  EXPECT_THAT(said.err, HasSubstr("terrace: " + a + ": needs "));
  EXPECT_THAT(said.err, HasSubstr("; short by "));
  const json legs = plan(everything, 1)["legs"];
  EXPECT_FALSE(legs[1]["fits"]);
  EXPECT_EQ(legs[1]["needs_bytes"], roomy["needs_bytes"]);
  EXPECT_EQ(legs[1]["offers_bytes"], ram);

  // generate refuses by the same sentence before anything is sent.
  const Outcome refused = run_terrace(with_model("generate",
                                                 [&] {
                                                   Arguments flags = everything;
                                                   flags.insert(flags.end(), {"-p", "x", "-n", "1"});
                                                   return flags;
                                                 }()),
                                      1);
  EXPECT_EQ(refused.err, said.err);

  // "give it at most experts 0-K, or start it with --ram R"
  const std::string text = legs[1]["refusal"];
  const std::size_t at = text.find("at most experts 0-");
  ASSERT_NE(at, std::string::npos) << text;
  const int last = std::stoi(text.substr(at + 18));
  const auto share = [&](int k) {
    return Arguments{"--node", a,         "--batch",
                     "8",      "--share", a + "=0-" + std::to_string(k) + ",host=" + std::to_string(k + 1) + "-15"};
  };
  EXPECT_TRUE(plan(share(last))["fits"]);
  EXPECT_FALSE(plan(share(last + 1), 1)["fits"]);
  EXPECT_EQ(plan(share(last))["legs"][1]["needs_bytes"], reserved_by_a_run(node, share(last)));
  const std::string more = text.substr(text.find("--ram ") + 6);
  node.stop();
  NodeProcess larger({"--ram", more, "--threads", "1"});
  EXPECT_TRUE(plan({"--node", larger.address(), "--batch", "8", "--share", larger.address() + "=0-15"})["fits"])
      << more;
  larger.stop();
}

TEST_F(Plan, ASecondSession_IsPlannedInWhatTheFirstLeaves) {
  NodeProcess node({"--ram", "256M", "--threads", "1"});
  const Arguments flags = {"--node", node.address()};
  const std::uint64_t before = plan(flags)["legs"][1]["offers_bytes"];
  Process first(terrace(with_model("generate", {"--stream", "-p", "x", "-n", "800", "--node", node.address()})));
  ASSERT_TRUE(eventually([&] { return !first.out().empty() || !first.running(); }));
  const json leg = plan(flags)["legs"][1];
  EXPECT_EQ(leg["offers_bytes"].get<std::uint64_t>() + leg["needs_bytes"].get<std::uint64_t>(), before);
  EXPECT_EQ(first.wait().exit_code, 0);
}

TEST_F(Plan, Host_RamAndContextDecide) {
  const json free = plan({});
  EXPECT_TRUE(free["fits"]);
  EXPECT_EQ(free["legs"][0]["kv_bytes"], 0) << "taken as needed";
  EXPECT_GT(free["room_for_positions"].get<std::uint64_t>(), 0u);
  const json fixed = plan({"--ctx-size", "40960"});
  EXPECT_GT(fixed["legs"][0]["kv_bytes"].get<std::uint64_t>(), 0u);
  EXPECT_EQ(fixed["legs"][0]["needs_bytes"].get<std::uint64_t>(),
            free["legs"][0]["needs_bytes"].get<std::uint64_t>() + fixed["legs"][0]["kv_bytes"].get<std::uint64_t>());
  const Outcome refused = run_terrace(with_model("generate", {"--ram", "1M", "-p", "x", "-n", "1"}), 1);
  EXPECT_THAT(refused.err, HasSubstr("terrace: host: needs "));
  EXPECT_EQ(plan({"--ram", "1M"}, 1)["legs"][0]["offers_bytes"], 1 << 20);
}

TEST_F(Plan, AFile_IsRunAsItSays_AndOnlyForItsModel) {
  NodeProcess node;
  const std::string& a = node.address();
  const std::string file = (dir_ / "plan.json").string();
  run_terrace(with_model("plan", {"--node", a, "--share", "host=0-3," + a + "=4-15", "--out", file}));
  const json written = read_json(file);
  expect_documented(written, {"A plan file"}, {"prediction"});
  expect_documented_within(written, "A plan file", "model");
  expect_documented(written["legs"][1], {"A leg's memory"});
  const json by_plan = run_terrace_json(with_model("generate", {"--plan", file, "-p", "x", "-n", "4", "--json"}));
  const json by_flags = run_terrace_json(
      with_model("generate", {"--node", a, "--share", "host=0-3," + a + "=4-15", "-p", "x", "-n", "4", "--json"}));
  EXPECT_EQ(by_plan["logits_xxh3"], by_flags["logits_xxh3"]);
  EXPECT_EQ(by_plan["legs"][1]["name"], a);
  EXPECT_EQ(by_plan["legs"][1]["experts"], 12 * 3);
  json planned = plan({"--plan", file})["legs"];
  const json asked = plan({"--node", a, "--share", "host=0-3," + a + "=4-15"})["legs"];
  planned[0]["offers_bytes"] = asked[0]["offers_bytes"];  // what is available changes from moment to moment
  EXPECT_EQ(planned, asked);

  const Outcome other = run_terrace({"generate", "--quiet", "-m", demo_model().string(), "--plan", file, "-p", "x"}, 1);
  EXPECT_THAT(other.err, HasSubstr("made for another model file (model.gguf"));
  for (const Arguments& more : {Arguments{"--node", a}, Arguments{"--share", "host=0-15"}}) {
    Arguments flags = {"--plan", file, "-p", "x"};
    flags.insert(flags.end(), more.begin(), more.end());
    EXPECT_THAT(run_terrace(with_model("generate", flags), 2).err, HasSubstr("leave out --node and --share"));
  }
  node.stop();
}

TEST_F(Plan, APlanThatDoesNotFit_IsNotWritten) {
  const std::string file = (dir_ / "plan.json").string();
  run_terrace(with_model("plan", {"--ram", "1M", "--out", file}), 1);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Plan, ANodeThatIsNotThere_IsNamed) {
  const Outcome run = run_terrace(with_model("plan", {"--node", "127.0.0.1:1"}), 1);
  EXPECT_THAT(run.err, HasSubstr("127.0.0.1:1: cannot be reached"));
}

}  // namespace cli_plan_test
}  // namespace terrace::test
