// `terrace plan --probe`: measures before anything is loaded, says what that predicts, and leaves nothing behind. What
// the numbers are is no matter of this test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace::test {
namespace cli_plan_probe_test {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanProbe : public ::testing::Test {
 protected:
  PlanProbe() { make_random_model({.layers = 3, .d_model = 256, .experts = 16, .ff = 256, .type = "q4_k_m"}, model_); }

  Arguments with_model(const char* command, const Arguments& flags) const {
    Arguments all = {command, "--quiet", "-m", model_.string(), "--batch", "32"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }

  const TempDir dir_;
  const std::filesystem::path model_ = dir_ / "model.gguf";
  const std::string file_ = (dir_ / "plan.json").string();
};

void expect_rate(const ordered_json& step) {
  ASSERT_TRUE(step.is_object()) << step;
  EXPECT_GT(step["tokens_per_second"].get<double>(), 0);
  EXPECT_FALSE(step["limited_by"].get<std::string>().empty());
}

// Each object of it has the keys of its table in docs/formats.md.
void expect_documented_prediction(const ordered_json& prediction) {
  expect_documented(prediction, {"A prediction"});
  for (const char* step : {"decode", "prompt"}) {
    expect_documented(prediction[step], {"A predicted step"});
    for (const ordered_json& leg : prediction[step]["legs"]) expect_documented(leg, {"A leg's terms"});
  }
  for (const ordered_json& loss : prediction["lost"]) {
    expect_documented(loss, {"A loss"});
    if (!loss["heirs"].empty()) expect_documented_within(loss, "A loss", "heirs");
    expect_documented(loss["decode"], {"A predicted step"});
    EXPECT_EQ(keys_within(loss["prompt"]), Keys({"tokens_per_second", "limited_by"}));
  }
  for (const ordered_json& without : prediction["without"]) expect_documented(without, {"A plan without a node"});
  const ordered_json& measured = prediction["measured"];
  expect_documented(measured, {"What was measured"});
  for (const char* part : {"decode", "prompt", "disk"}) expect_documented_within(measured, "What was measured", part);
  for (const ordered_json& leg : measured["legs"]) {
    const bool host = leg["name"] == "host";
    expect_documented(leg, {"A measured leg"},
                      host ? Keys{"round_trip_us", "bytes_per_second", "weights_bytes_per_second"} : Keys{});
    expect_documented_within(leg, "A measured leg", "kinds");
  }
}

void expect_prediction(const ordered_json& prediction, const std::vector<std::string>& legs) {
  expect_shape(prediction, {{"date", "string"},
                            {"prompt_rows", "number"},
                            {"decode", "object"},
                            {"prompt", "object"},
                            {"lost", "array"},
                            {"without", "array"},
                            {"measured", "object"}});
  expect_documented_prediction(prediction);
  EXPECT_EQ(prediction["prompt_rows"], 32);
  for (const char* step : {"decode", "prompt"}) {
    expect_rate(prediction[step]);
    EXPECT_EQ(prediction[step]["legs"].size(), legs.size());
    EXPECT_NEAR(prediction[step]["step_ms"].get<double>(),
                prediction[step]["trunk_ms"].get<double>() + prediction[step]["dispatch_ms"].get<double>() +
                    prediction[step]["layers_ms"].get<double>() + prediction[step]["beyond_terms_ms"].get<double>() -
                    prediction[step]["hidden_ms"].get<double>(),
                1e-6);
  }
  const ordered_json& measured = prediction["measured"];
  ASSERT_EQ(measured["legs"].size(), legs.size());
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const ordered_json& leg = measured["legs"][i];
    EXPECT_EQ(leg["name"], legs[i]);
    EXPECT_EQ(leg["machine"], measured["legs"][0]["machine"]) << "all on this machine";
    EXPECT_EQ(leg["kinds"].size(), 2u) << "q4_k_m: down is of two types";
    for (const ordered_json& kind : leg["kinds"])
      for (const char* rows : {"1", "8", "64", "512"}) {
        EXPECT_GT(kind["alone"]["expert_us_at_rows"][rows].get<double>(), 0) << leg["name"] << " " << rows;
        EXPECT_GE(kind["all_at_once"]["expert_us_at_rows"][rows].get<double>(),
                  kind["alone"]["expert_us_at_rows"][rows].get<double>());
      }
    if (i == 0) continue;
    EXPECT_GT(leg["weights_bytes_per_second"].get<double>(), 0);
    EXPECT_EQ(prediction["lost"][i - 1]["node"], legs[i]);
    expect_rate(prediction["lost"][i - 1]["decode"]);
    EXPECT_EQ(prediction["without"][i - 1]["node"], legs[i]);
  }
  EXPECT_GT(measured["disk"]["buffered_bytes_per_second"].get<double>(), 0);
}

TEST_F(PlanProbe, TwoNodes_PredictionIsInTheFile_BenchPrintsItBeside_NothingIsLeft) {
  NodeProcess a({"--threads", "1"}), b({"--threads", "1"});
  const Outcome said = run_terrace(
      with_model("plan", {"--node", a.address(), "--node", b.address(), "--probe", "--explain", "--out", file_}));
  for (const char* part : {"predicted from what was measured", "decode, empty context", "prompt of 32 tokens",
                           "with one node lost", "measured whole", "direct", "round trip"})
    EXPECT_THAT(said.out, HasSubstr(part));
  EXPECT_THAT(said.out, Not(HasSubstr("speed is not predicted")));
  for (const NodeProcess* node : {&a, &b}) {
    EXPECT_TRUE(eventually([&] { return node->status()["sessions"].empty() && node->reserved() == 0; }));
  }
  const ordered_json plan = ordered_json::parse(std::ifstream(file_));
  expect_documented(plan, {"A plan file"});
  expect_prediction(plan["prediction"], {"host", a.address(), b.address()});

  const json rows = run_terrace_json(
      with_model("bench", {"--plan", file_, "-p", "32,40", "-n", "3", "-r", "1", "--limits-buffer", "4M", "--json"}));
  ASSERT_EQ(rows.size(), 3u);
  for (const std::size_t prompt : {0, 1})
    expect_documented(rows[prompt], {"Every row", "A test"}, {"card_read_gb_per_second"});
  EXPECT_EQ(rows[0]["predicted_tokens_per_second"], plan["prediction"]["prompt"]["tokens_per_second"]);
  EXPECT_TRUE(rows[1]["predicted_tokens_per_second"].is_null()) << "of another length";
  EXPECT_EQ(rows[2]["predicted_tokens_per_second"], plan["prediction"]["decode"]["tokens_per_second"]);
  EXPECT_EQ(rows[2]["predicted_at"], plan["prediction"]["date"]);
  const Outcome table =
      run_terrace(with_model("bench", {"--plan", file_, "-p", "0", "-n", "3", "-r", "1", "--limits-buffer", "4M"}));
  EXPECT_THAT(table.out, HasSubstr("predicted by the plan at"));
}

TEST_F(PlanProbe, WithoutIt_SpeedIsNotPredicted) {
  EXPECT_THAT(run_terrace(with_model("plan", {})).out, HasSubstr("speed is not predicted"));
  EXPECT_TRUE(json::parse(run_terrace(with_model("plan", {"--json"})).out)["prediction"].is_null());
  for (const Arguments& flags : {Arguments{"--explain"}, Arguments{"--survive", "1"}, Arguments{"--min-decode", "3"},
                                 Arguments{"--probe", "--min-decode", "3"}})
    EXPECT_THAT(run_terrace(with_model("plan", flags), 2).err, HasSubstr("give --"));
}

TEST_F(PlanProbe, Survive_RefusesWithNumbersAndWritesNoFile) {
  NodeProcess node({"--threads", "1"});
  const Outcome refused = run_terrace(with_model("plan", {"--node", node.address(), "--probe", "--survive", "1",
                                                          "--min-decode", "1e8", "--out", file_}),
                                      1);
  EXPECT_THAT(refused.err, HasSubstr("without " + node.address() + " this plan decodes "));
  EXPECT_THAT(refused.err, HasSubstr("100000000.00 were asked for"));
  EXPECT_THAT(refused.out, HasSubstr("with one node lost"));
  EXPECT_FALSE(std::filesystem::exists(file_));
  const Outcome kept = run_terrace(
      with_model("plan", {"--node", node.address(), "--probe", "--survive", "1", "--min-decode", "0", "--json"}));
  const ordered_json said = ordered_json::parse(kept.out);
  expect_prediction(said["prediction"], {"host", node.address()});
  EXPECT_EQ(said["worst_loss"]["nodes"], ordered_json::array({node.address()}));
  EXPECT_EQ(said["worst_loss"]["sets_tried"], 1);
}

TEST_F(PlanProbe, Survive_MoreNodesThanThereAre_IsRefusedBeforeAnythingIsMeasured) {
  const Outcome alone = run_terrace(with_model("plan", {"--probe", "--survive", "1"}), 2);
  EXPECT_THAT(alone.err, HasSubstr("--survive 1: the plan has no node to lose"));
  NodeProcess node({"--threads", "1"});
  const Outcome two = run_terrace(with_model("plan", {"--node", node.address(), "--probe", "--survive", "2"}), 2);
  EXPECT_THAT(two.err, HasSubstr("--survive 2: the plan has 1 node; give no more"));
  EXPECT_EQ(two.out, "");
}

TEST_F(PlanProbe, AProbeThatIsKilled_LeavesNothingOnTheNode) {
  NodeProcess node({"--threads", "1"});
  Process probe(terrace(with_model("plan", {"--node", node.address(), "--probe"})));
  ASSERT_TRUE(eventually([&] { return node.reserved() > 0 || !probe.running(); }));
  EXPECT_TRUE(probe.running()) << probe.err();
  probe.kill(SIGKILL);
  EXPECT_TRUE(eventually([&] { return node.reserved() == 0 && node.status()["sessions"].empty(); }));
  run_terrace(with_model("plan", {"--node", node.address(), "--probe"}));  // and it can be probed again
}

TEST_F(PlanProbe, ANodeThatDiesMeanwhile_IsNamed) {
  NodeProcess node({"--threads", "1"});
  Process probe(terrace(with_model("plan", {"--node", node.address(), "--probe"})));
  ASSERT_TRUE(eventually([&] { return node.reserved() > 0 || !probe.running(); }));
  node.kill(SIGKILL);
  const Outcome ended = probe.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("terrace: " + node.address() + ": "));
}

}  // namespace cli_plan_probe_test
}  // namespace terrace::test
