// `terrace bench`: what it prints and what it refuses. No time is asserted.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace::test {
namespace cli_bench_test {

using nlohmann::ordered_json;

// The default buffer takes seconds of a busy machine; one that fits the cache shows the same table.
const Arguments kQuick = {"--limits-buffer", "4M", "-r", "2", "-t", "2"};

Arguments bench(const Arguments& flags) {
  Arguments all = {"bench", "--quiet"};
  all.insert(all.end(), kQuick.begin(), kQuick.end());
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

ordered_json bench_json(const Arguments& flags) {
  Arguments all = bench(flags);
  all.insert(all.end(), {"-o", "json"});
  const Outcome run = run_terrace(all);
  EXPECT_EQ(run.err, "") << "--quiet";
  return ordered_json::parse(run.out);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

void expect_row(const ordered_json& row, bool decode) {
  expect_shape(row, {{"test", "string"},
                     {"model", "string"},
                     {"threads", "number"},
                     {"cpus", "array"},
                     {"waiting", "string"},
                     {"isa", "string"},
                     {"depth", "number"},
                     {"n_prompt", "number"},
                     {"n_gen", "number"},
                     {"tokens_per_second", "number"},
                     {"tokens_per_second_stddev", "number"},
                     {"weight_gb_per_second", "number"},
                     {"share_of_bandwidth", decode ? "number" : "null"},
                     {"wire_bytes_per_token", "number"},
                     {"legs", "array"},
                     {"parts", "number"},
                     {"commit", "string"}});
  for (const auto& leg : row["legs"]) expect_leg_shape(leg);
  expect_documented(row, {"Every row", "A test"},
                    {"card_read_gb_per_second", "predicted_tokens_per_second", "predicted_at", "prompt_limits",
                     "share_of_least_limit"});
}

// A row that is no test's: its own keys, then those of the run.
void expect_other_row(const ordered_json& row, std::vector<std::pair<std::string, std::string>> keys) {
  keys.insert(keys.end(), {{"model", "string"},
                           {"threads", "number"},
                           {"cpus", "array"},
                           {"waiting", "string"},
                           {"isa", "string"},
                           {"commit", "string"}});
  expect_shape(row, keys);
}

TEST(Bench, Json_OneRowATest_WithTheNamedKeys) {
  const ordered_json rows = bench_json({"-p", "16,0,8", "-n", "4", "-d", "0,5", "--isa", "scalar"});
  ASSERT_EQ(rows.size(), 6u);
  const std::vector<std::string> tests = {"pp16", "pp8", "tg4", "pp16", "pp8", "tg4"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ordered_json& row = rows[i];
    expect_row(row, i % 3 == 2);
    EXPECT_EQ(row["test"], tests[i]);
    EXPECT_EQ(row["depth"], i < 3 ? 0 : 5);
    EXPECT_EQ(row["n_prompt"], i % 3 == 2 ? 0 : i % 3 == 1 ? 8 : 16);
    EXPECT_EQ(row["n_gen"], i % 3 == 2 ? 4 : 0);
    EXPECT_EQ(row["model"], "demo-story-42m-q4_k_m.gguf");
    EXPECT_EQ(row["threads"], 2);
    EXPECT_EQ(row["isa"], "scalar");
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_GT(row["weight_gb_per_second"], 0);
    EXPECT_EQ(row["wire_bytes_per_token"], 0) << "no node";
    EXPECT_FALSE(row["commit"].get<std::string>().empty());
    ASSERT_EQ(row["legs"].size(), 1u);
    // 6 layers, top 4: what was measured counts, without the cache's filling and the first run.
    const std::size_t tokens = 2 * (row["n_prompt"].get<std::size_t>() + row["n_gen"].get<std::size_t>());
    EXPECT_EQ(row["legs"][0]["rows"], 6 * tokens);
    EXPECT_EQ(row["legs"][0]["pairs"], 6 * 4 * tokens);
  }
}

// What the shares are made of, by the row's own numbers and the file's.
TEST(Bench, DecodeRow_WeightsAreTheModelsStepTimesSteps) {
  const ordered_json rows = bench_json({"-p", "0", "-n", "3,6"});
  ASSERT_EQ(rows.size(), 2u);
  const auto bytes_a_token = [](const ordered_json& row) {
    return row["weight_gb_per_second"].get<double>() * 1e9 / row["tokens_per_second"].get<double>();
  };
  EXPECT_NEAR(bytes_a_token(rows[0]), bytes_a_token(rows[1]), 1) << "every decode step reads as much";
  // More than the chosen experts alone and less than the whole file, of which 4 of 32 experts are read.
  EXPECT_GT(bytes_a_token(rows[0]), 1e6);
  EXPECT_LT(bytes_a_token(rows[0]), static_cast<double>(std::filesystem::file_size(demo_model())));
  const auto bandwidth = [](const ordered_json& row) {
    return row["weight_gb_per_second"].get<double>() / row["share_of_bandwidth"].get<double>();
  };
  EXPECT_NEAR(bandwidth(rows[0]) / bandwidth(rows[1]), 1, 1e-9) << "one measurement serves the whole run";
}

// Streams share what they read, so a step reads less than each alone; and the bound is what its terms say.
TEST(Bench, Streams_OneRowMore_WithTheTermsOfItsBound) {
  const ordered_json rows = bench_json({"-p", "0", "-n", "3", "--streams", "4"});
  ASSERT_EQ(rows.size(), 2u);
  expect_row(rows[0], true);
  const ordered_json& row = rows[1];
  expect_other_row(row, {{"test", "string"},
                         {"streams", "number"},
                         {"depth", "number"},
                         {"n_prompt", "number"},
                         {"n_gen", "number"},
                         {"tokens_per_second", "number"},
                         {"tokens_per_second_stddev", "number"},
                         {"one_stream_tokens_per_second", "number"},
                         {"one_stream_tokens_per_second_stddev", "number"},
                         {"times_one_stream", "number"},
                         {"step_ms", "number"},
                         {"scheduler_us_per_step", "number"},
                         {"one_stream_scheduler_us_per_step", "number"},
                         {"distinct_experts_per_layer", "number"},
                         {"weight_bytes_per_step", "number"},
                         {"weight_gb_per_second", "number"},
                         {"share_of_bandwidth", "number"},
                         {"bound", "object"},
                         {"share_of_bound", "number"}});
  expect_documented(row, {"Every row", "A row of `--streams`"});
  expect_documented_within(row, "A row of `--streams`", "bound");
  EXPECT_EQ(row["test"], "tg3x4");
  EXPECT_EQ(row["streams"], 4);
  // 4 of 32 experts a row and layer: one row's at least, four rows' at most.
  EXPECT_GE(row["distinct_experts_per_layer"], 4.0);
  EXPECT_LE(row["distinct_experts_per_layer"], 16.0);
  const double one_step =
      rows[0]["weight_gb_per_second"].get<double>() * 1e9 / rows[0]["tokens_per_second"].get<double>();
  EXPECT_GT(row["weight_bytes_per_step"], one_step);
  EXPECT_LT(row["weight_bytes_per_step"], 4 * one_step);
  const ordered_json& bound = row["bound"];
  EXPECT_GT(bound["kernels_ms"], 0);
  const double limit_ms = std::max(bound["weights_ms"].get<double>(), bound["kernels_ms"].get<double>());
  EXPECT_NEAR(bound["tokens_per_second"].get<double>() * limit_ms, 4000, 1e-6);
  EXPECT_NEAR(row["share_of_bound"].get<double>() * bound["tokens_per_second"].get<double>(),
              row["tokens_per_second"].get<double>(), 1e-6);
}

TEST(Bench, Streams_BeyondTheContext_AreRefusedWithNumbers) {
  const Outcome run = run_terrace(bench({"-p", "0", "-n", "4", "--streams", "2", "--ctx-size", "64"}), 1);
  EXPECT_EQ(count(run.err, "tg4x2 at depth 0 needs 261 positions and the context holds 64"), 1u) << run.err;
  EXPECT_EQ(count(run_terrace(bench({"--streams", "1"}), 2).err, "--streams 1: give 2 or more"), 1u);
}

// Of real parts: the scheduler, the HTTP server and a client of it.
TEST(Bench, Serving_ARowAFigure_WithItsTerms) {
  const ordered_json rows = bench_json({"-p", "0", "-n", "0", "--serving", "--streams", "3", "-r", "1"});
  ASSERT_EQ(rows.size(), 4u);
  const std::vector<std::string> tests = {"first_token_beside_streams", "mixed_step", "token_cost", "shared_prefix"};
  for (std::size_t i = 0; i < tests.size(); ++i) {
    EXPECT_EQ(rows[i]["test"], tests[i]);
    expect_documented(rows[i], {"Every row", "`" + tests[i] + "`"}, {"cpus", "waiting"});
    EXPECT_EQ(rows[i]["model"], "demo-story-42m-q4_k_m.gguf");
    EXPECT_TRUE(rows[i]["ratio"].is_number()) << rows[i];
  }
  EXPECT_GT(rows[0]["longest_mixed_step_ms"], 0) << "a prompt came beside a stream";
  for (const char* term : {"mixed_step_ms", "decode_step_ms", "chunk_ms"}) EXPECT_GT(rows[1][term], 0) << term;
  for (const char* term : {"generate_us", "serve_us", "generate_outside_trunk_us", "serve_outside_trunk_us"})
    EXPECT_GT(rows[2][term], 0) << term;
  for (const char* term : {"first_token_ms", "new_tokens_ms"}) EXPECT_GT(rows[3][term], 0) << term;
}

TEST(Bench, ZeroLeavesATestOut) {
  const ordered_json prompts = bench_json({"-p", "4", "-n", "0"});
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0]["test"], "pp4");
  const ordered_json generations = bench_json({"-p", "0", "-n", "2"});
  ASSERT_EQ(generations.size(), 1u);
  EXPECT_EQ(generations[0]["test"], "tg2");
  const Outcome nothing = run_terrace(bench({"-p", "0", "-n", "0"}), 2);
  EXPECT_EQ(nothing.err, "terrace: nothing to measure: --n-prompt and --n-gen are 0; give one of them, or --limits\n");
}

TEST(Bench, Markdown_OneTableRowATest) {
  const Outcome run = run_terrace(bench({"-p", "4", "-n", "2", "-d", "0,3"}));
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(count(run.out, "\n| test    | depth |"), 1u) << run.out;
  EXPECT_EQ(count(run.out, "\n|"), 2u + 4u) << run.out;
  EXPECT_EQ(count(run.out, "\n| pp4     |"), 2u) << run.out;
  EXPECT_EQ(count(run.out, "\n| tg2     |"), 2u) << run.out;
  EXPECT_EQ(count(run.out, "% |"), 2u) << "a share in each tg row: " << run.out;
  EXPECT_EQ(count(run.out, "read bandwidth of the same threads: "), 1u) << run.out;
}

// Every way to read is one row; 2M pages may be missing, and then a line says so. Every weight type is one row.
void expect_limits(const std::string& text) {
  EXPECT_EQ(count(text, "\n| 4K "), 12u) << text;
  EXPECT_TRUE(count(text, "\n| 2M ") == 12 || count(text, "2M pages: the system gave ") == 1) << text;
  EXPECT_EQ(count(text, "best: "), 1u) << text;
  EXPECT_NE(text.find("buffer 4M"), std::string::npos) << text;
  for (const char* type : {"BF16", "F16", "F32", "Q3_K", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0"})
    EXPECT_EQ(count(text, std::string("\n| ") + type + " "), 1u) << type << ": " << text;
}

TEST(Bench, Limits_PrintsTheTableBehindTheShares) {
  expect_limits(run_terrace(bench({"--limits", "-p", "0", "-n", "2"})).out);
  const Outcome json_run = run_terrace(bench({"--limits", "-p", "0", "-n", "2", "-o", "json"}));
  expect_limits(json_run.err);
  EXPECT_EQ(ordered_json::parse(json_run.out).size(), 1u) << "stdout stays one array";
}

TEST(Bench, LimitsWithoutTests_NeedNoModel) {
  expect_limits(run_terrace(bench({"--limits", "-p", "0", "-n", "0", "-m", "/nowhere.gguf"})).out);
}

TEST(Bench, DepthBeyondTheContext_IsRefusedWithNumbers) {
  const Outcome run = run_terrace(bench({"-p", "0", "-n", "4", "-d", "61", "--ctx-size", "64"}), 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(
      run.err,
      "terrace: tg4 at depth 61 needs 65 positions and the context holds 64; lower --depth or raise --ctx-size\n");
  EXPECT_EQ(bench_json({"-p", "0", "-n", "4", "-d", "60", "--ctx-size", "64"}).size(), 1u) << "the last one is used";
}

TEST(Bench, BadLists_AreUsageErrorsThatQuoteThem) {
  for (const char* flag : {"-p", "-n", "-d"})
    for (const char* bad : {"1,", "-1", "x", "1;2", "nan", "9223372036854775808"}) {
      const Outcome run = run_terrace(bench({flag, bad}), 2);
      EXPECT_EQ(run.out, "");
      EXPECT_EQ(count(run.err, "\n"), 1u) << run.err;
    }
  EXPECT_EQ(run_terrace(bench({"-n", "1,x"}), 2).err,
            "terrace: --n-gen: \"x\" is not allowed; give whole numbers from 0 to 16777216, separated by commas\n");
  run_terrace(bench({"-r", "0"}), 2);
  run_terrace(bench({"-o", "xml"}), 2);
}

// The terms are of the same steps: every pair of a step is one leg's, and the sum is what its terms say.
TEST(Bench, LegsAlone_OneRowMore_WithTheTermsOfItsSum) {
  const TempDir temp;
  make_random_model({}, temp / "model.gguf");
  NodeProcess node({"--ram", "64M"});
  const ordered_json rows = bench_json({"-m", (temp / "model.gguf").string(), "--node", node.address(), "-p", "0", "-n",
                                        "4", "-d", "5", "--legs-alone", "--audit", "0"});
  ASSERT_EQ(rows.size(), 2u);
  expect_row(rows[0], true);
  const ordered_json& row = rows[1];
  expect_other_row(row, {{"test", "string"},
                         {"depth", "number"},
                         {"n_prompt", "number"},
                         {"n_gen", "number"},
                         {"step_us", "number"},
                         {"trunk_us", "number"},
                         {"legs", "array"},
                         {"longest_us", "number"},
                         {"sum_us", "number"},
                         {"step_over_sum", "number"}});
  expect_documented(row, {"Every row", "A row of `--legs-alone`"});
  expect_documented_within(row, "A row of `--legs-alone`", "legs");
  EXPECT_EQ(row["test"], "tg4-alone");
  EXPECT_EQ(row["depth"], 5);
  ASSERT_EQ(row["legs"].size(), 2u);
  double pairs = 0, alone = 0, longest = 0, shares = 0;
  for (const ordered_json& leg : row["legs"]) {
    expect_shape(leg, {{"name", "string"},
                       {"kind", "string"},
                       {"pairs", "number"},
                       {"alone_us", "number"},
                       {"compute_us", "number"},
                       {"longest_share", "number"}});
    EXPECT_GT(leg["alone_us"], 0);
    EXPECT_LE(leg["compute_us"], leg["alone_us"]);
    pairs += leg["pairs"].get<double>();
    alone += leg["alone_us"].get<double>();
    longest = std::max(longest, leg["alone_us"].get<double>());
    shares += leg["longest_share"].get<double>();
  }
  // What the measured row's legs counted of as many tokens, twice.
  double counted = 0;
  for (const ordered_json& leg : rows[0]["legs"]) counted += leg["pairs"].get<double>();
  EXPECT_DOUBLE_EQ(pairs, counted / (2 * 4));
  EXPECT_GE(row["longest_us"], longest * (1 - 1e-9)) << "no leg is longer than the longest in each layer";
  EXPECT_LE(row["longest_us"], alone * (1 + 1e-9));
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_NEAR(row["sum_us"].get<double>(), row["trunk_us"].get<double>() + row["longest_us"].get<double>(), 1e-6);
  EXPECT_NEAR(row["step_over_sum"].get<double>() * row["sum_us"].get<double>(), row["step_us"].get<double>(), 1e-6);
  node.stop();
  EXPECT_EQ(run_terrace(bench({"-p", "0", "-n", "2", "--legs-alone"}), 2).err,
            "terrace: --legs-alone: host has all experts; give some to others (--node, --gpu with --vram)\n");
}

// Refused before anything is measured: a run of hours ends with what it measured.
TEST(Bench, LegsAlone_WithNothingToCompare_IsRefusedBeforeTheTests) {
  const Outcome one_leg = run_terrace({"bench", "-m", demo_model().string(), "-p", "0", "-n", "2", "--legs-alone"}, 2);
  EXPECT_EQ(count(one_leg.err, "host has all experts"), 1u) << one_leg.err;
  EXPECT_EQ(count(one_leg.err, "tg2 at depth 0"), 0u) << "a test ran: " << one_leg.err;
  EXPECT_EQ(run_terrace(bench({"-p", "4", "-n", "0", "--legs-alone"}), 2).err,
            "terrace: --legs-alone replays the tokens of --n-gen, which is 0; say how many tokens to generate\n");
  EXPECT_EQ(run_terrace(bench({"-p", "4", "-n", "0", "--streams", "4"}), 2).err,
            "terrace: --streams decodes the tokens of --n-gen, which is 0; say how many tokens to generate\n");
}

TEST(Bench, APartThatFails_LeavesTheRowsBeforeIt) {
  const std::vector<std::string> args = {"-p", "0", "-n", "4", "--streams", "2", "--ctx-size", "64"};
  std::vector<std::string> json_args = args;
  json_args.push_back("--json");
  const Outcome json_run = run_terrace(bench(json_args), 1);
  const ordered_json rows = ordered_json::parse(json_run.out);
  ASSERT_EQ(rows.size(), 1u);
  expect_row(rows[0], true);
  EXPECT_EQ(count(json_run.err, "tg4x2 at depth 0 needs 261 positions"), 1u) << json_run.err;
  EXPECT_EQ(count(run_terrace(bench(args), 1).out, "\n| tg4     |"), 1u);
  EXPECT_EQ(run_terrace(bench({"-p", "0", "-n", "4", "-d", "61", "--ctx-size", "64", "--json"}), 1).out, "")
      << "nothing was measured";
}

// Both legs count, and the wire's bytes a token are theirs.
TEST(Bench, WithANode_WireBytesAreTheLegs) {
  const TempDir temp;
  make_random_model({}, temp / "model.gguf");
  NodeProcess node({"--ram", "64M"});
  const ordered_json rows =
      bench_json({"-m", (temp / "model.gguf").string(), "--node", node.address(), "-p", "8", "-n", "4"});
  ASSERT_EQ(rows.size(), 2u);
  for (const ordered_json& row : rows) {
    expect_row(row, row["n_gen"] != 0);
    ASSERT_EQ(row["legs"].size(), 2u);
    EXPECT_EQ(row["legs"][1]["name"], node.address());
    EXPECT_EQ(row["legs"][1]["kind"], "node");
    const double bytes = row["legs"][1]["bytes_sent"].get<double>() + row["legs"][1]["bytes_received"].get<double>();
    const double tokens = 2 * (row["n_prompt"].get<double>() + row["n_gen"].get<double>());
    EXPECT_GT(bytes, 0);
    EXPECT_DOUBLE_EQ(row["wire_bytes_per_token"], bytes / tokens);
    EXPECT_GT(row["legs"][1]["weight_bytes_sent"], 0);
  }
  node.stop();
}

}  // namespace cli_bench_test
}  // namespace terrace::test
