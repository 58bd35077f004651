// `terrace inspect`, `status` and `selftest`, and the programs terrace-node and terrace-random-model.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"

namespace terrace::test {
namespace cli_inspect_test {

using nlohmann::ordered_json;

TEST(Inspect, DemoModel_SaysWhatItIsAndThatItRuns) {
  const std::string out = run_terrace({"inspect", demo_model().string()}).out;
  for (const char* part : {"architecture qwen3moe", "6 layers, width 256, vocabulary 4096, context 2048",
                           "32 a layer, top 4", "runs here    yes", "tokenizer    yes", "Q4_K        39 tensors",
                           "qwen3moe.expert_count", "blk.0.ffn_down_exps.weight"})
    EXPECT_NE(out.find(part), std::string::npos) << part;
  EXPECT_EQ(out.find("no kernel"), std::string::npos);
}

TEST(Inspect, Json_HoldsMetadataTensorsAndExperts) {
  const json got = run_terrace_json({"inspect", "--json", demo_model().string()});
  EXPECT_EQ(got["bytes"], std::filesystem::file_size(demo_model()));
  EXPECT_EQ(got["architecture"], "qwen3moe");
  EXPECT_EQ(got["metadata"]["qwen3moe.expert_count"]["value"], "32");
  EXPECT_EQ(got["experts"]["n_experts"], 32);
  EXPECT_EQ(got["experts"]["layers"].size(), 6u);
  EXPECT_EQ(got["runs"]["model"], true);
  EXPECT_EQ(got["runs"]["tokenizer"], true);
  const json types = read_json(data_dir() / "demo" / "cases.json")["types"];
  ASSERT_EQ(got["tensors"].size(), types.size());
  for (const json& tensor : got["tensors"]) EXPECT_EQ(tensor["type"], types[tensor["name"]]) << tensor["name"];
}

// The second run takes the hashes from its cache; both say the same.
TEST(Inspect, Manifest_IsTheSameFromTheCache) {
  const Arguments arguments = {"inspect", "--json", "--manifest", (data_dir() / "tiny" / "tiny-mix.gguf").string()};
  const json first = run_terrace_json(arguments)["manifest"];
  EXPECT_EQ(first["hash"].get<std::string>().size(), 64u);
  ASSERT_EQ(first["slab_ids"].size(), 2u);
  EXPECT_EQ(first["slab_ids"][0].size(), 8u);
  EXPECT_EQ(run_terrace_json(arguments)["manifest"], first);
}

TEST(Inspect, AModelWithoutKernels_IsShownAndSaysWhy) {
  const TempDir dir;
  const auto path = dir / "odd.gguf";
  std::string bytes = read_file(data_dir() / "gguf" / "base.gguf");
  const std::size_t at = bytes.find("qwen3moe");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 8, "qwen9moe");
  write_file(path, bytes);
  const std::string out = run_terrace({"inspect", path.string()}).out;
  EXPECT_NE(out.find("architecture qwen9moe"), std::string::npos);
  EXPECT_NE(out.find("is qwen9moe; this build runs qwen3moe"), std::string::npos) << out.substr(0, 400);
}

TEST(Selftest, EveryKernelEqual_AndListed) {
  const json got = run_terrace_json({"selftest", "--json"});
  std::size_t chosen = 0;
  for (const json& row : got["rows"]) {
    EXPECT_EQ(row["ok"], true) << row.dump();
    chosen += row["chosen"] == true;
  }
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q3_K", "Q4_K", "Q5_K", "Q6_K"})
    EXPECT_TRUE(std::any_of(got["rows"].begin(), got["rows"].end(), [&](const json& r) { return r["what"] == type; }))
        << type;
  EXPECT_EQ(chosen, 11u) << "EXP, SILU and nine weight types";
  const std::string table = run_terrace({"selftest", "--isa", "scalar"}).out;
  EXPECT_NE(table.find("the trunk's operations use scalar"), std::string::npos) << table;
  EXPECT_EQ(table.find("DIFFERS"), std::string::npos);
}

TEST(Status, Json_HasTheNamedKeys) {
  NodeProcess node;
  const Outcome run = run_terrace({"status", "--json", "--node", node.address()});
  const auto got = ordered_json::parse(run.out);
  expect_shape(got, {{"listen", "string"},
                     {"boot_id", "string"},
                     {"version", "string"},
                     {"numerics_version", "number"},
                     {"state", "string"},
                     {"isa", "string"},
                     {"kernels", "object"},
                     {"memory", "object"},
                     {"cards", "array"},
                     {"threads", "number"},
                     {"cpus", "array"},
                     {"pinned", "boolean"},
                     {"waiting", "string"},
                     {"cpu_choice", "string"},
                     {"confinement", "array"},
                     {"link", "string"},
                     {"sessions", "array"}});
  EXPECT_EQ(got["listen"], node.address());
  EXPECT_EQ(got["state"], "ok");
  EXPECT_TRUE(got["kernels"].contains("Q4_K"));
  EXPECT_EQ(got["sessions"].size(), 0u);
  const std::string table = run_terrace({"status", "--node", node.address()}).out;
  EXPECT_NE(table.find(node.address() + "  ok  terrace-node 0."), std::string::npos) << table;
  EXPECT_NE(table.find("no sessions"), std::string::npos);
  EXPECT_EQ(got["link"], "tcp");
  EXPECT_NE(table.find("\nlink    tcp\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\nconfinement  no new privileges; no capabilities"), std::string::npos) << table;
  node.stop();
}

// While a session computes its counters run; each has the named fields, and what the node counted is what the
// coordinator counted.
TEST(Status, ASessionThatComputes_IsCountedLive) {
  NodeProcess node;
  Process coordinator(terrace({"generate", "--json", "-m", demo_model().string(), "--node", node.address(), "--share",
                               node.address() + "=0-31", "-p", "Once upon a time", "-n", "1500", "--temperature", "1",
                               "--no-special"}));
  ordered_json session;
  EXPECT_TRUE(eventually([&] {
    coordinator.kill(SIGSTOP);  // the run is short, and stands still while it is looked at
    const auto status = ordered_json::parse(run_terrace({"status", "--json", "--node", node.address()}).out);
    if (!status["sessions"].empty()) session = status["sessions"][0];
    if (session.is_object() && session["rows"] != 0) return true;
    coordinator.kill(SIGCONT);
    return !coordinator.running();
  }));
  ASSERT_TRUE(session.is_object() && session["rows"] != 0) << "it was never seen to compute\n" << coordinator.err();
  const std::string table = run_terrace({"status", "--node", node.address()}).out;
  coordinator.kill(SIGCONT);
  EXPECT_NE(table.find("sessions\n  session "), std::string::npos) << table;
  for (const char* key : {"epoch", "experts", "batches", "rows", "pairs", "bytes_sent", "bytes_received", "compute_us"})
    EXPECT_TRUE(session.contains(key) && session[key].is_number()) << key;
  EXPECT_EQ(session["experts"], 6 * 32);
  // Counters are read one after the other while they run: the four rows of the prompt may stand between.
  EXPECT_NEAR(session["pairs"], session["rows"].get<double>() * 4, 4 * 4);
  const Outcome end = coordinator.wait();
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json legs = json::parse(end.out)["legs"];
  EXPECT_GE(legs[1]["pairs"], session["pairs"]);
  EXPECT_TRUE(eventually([&] { return node.status()["sessions"].empty(); })) << "the session ends with its coordinator";
  node.stop();
}

TEST(TerraceNode, Refusals_AreOneLineAtTheEnd) {
  struct Case {
    Arguments arguments;
    int exit_code;
    const char* part;
  };
  for (const Case& c :
       {Case{{"--listen", "0.0.0.0:9555"}, 1, "not loopback"}, Case{{"--listen", "somewhere"}, 2, "is not HOST:PORT"},
        Case{{"--lissten", "127.0.0.1:1"}, 2, "did you mean --listen?"},
        Case{{"--threads", "0"}, 2, "'0' is not a whole number from 1 to 1024"}, Case{{"--ram", "lots"}, 2, "--ram"},
        Case{{"--isa", "avx9"}, 2, "'avx9' is not one of scalar, avx2, avx512-vnni"},
        Case{{"extra"}, 2, "unexpected argument 'extra'"}}) {
    Arguments all = {program("terrace-node"), "--log-level", "error"};
    all.insert(all.end(), c.arguments.begin(), c.arguments.end());
    const Outcome run = run_program(all);
    EXPECT_EQ(run.exit_code, c.exit_code) << run.err;
    EXPECT_TRUE(run.err.starts_with("terrace-node: ")) << run.err;
    EXPECT_NE(run.err.find(c.part), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

TEST(TerraceNode, AModelThatIsNotThere_IsNamed) {
  const Outcome run = run_program(
      {program("terrace-node"), "--listen", "127.0.0.1:0", "--log-level", "error", "--model", "/nowhere/model.gguf"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "terrace-node: /nowhere/model.gguf: cannot open it: No such file or directory\n");
}

TEST(TerraceNode, AClosedStderr_DoesNotEndIt) {
  const Outcome run = run_shell("\"$@\" 2>&- & pid=$!; sleep 3; kill -TERM $pid; wait $pid",
                                {program("terrace-node"), "--listen", "127.0.0.1:0"});
  EXPECT_EQ(run.exit_code, 0) << run.signal;
}

const Arguments kSmallModel = {"--layers",   "2",   "--d-model",  "256", "--heads",   "4",
                               "--kv-heads", "2",   "--head-dim", "64",  "--top-k",   "2",
                               "--ff",       "256", "--vocab",    "400", "--context", "128"};

Outcome random_model(const Arguments& flags) {
  Arguments all = {program("terrace-random-model")};
  all.insert(all.end(), flags.begin(), flags.end());
  return run_program(all);
}

struct TypeAndExperts {
  const char* type;
  const char* experts;
};
class RandomModel : public ::testing::TestWithParam<TypeAndExperts> {};

TEST_P(RandomModel, SameSeedSameBytes_AndItGenerates) {
  const TempDir dir;
  const auto make = [&](const std::string& name, const std::string& seed) {
    Arguments flags = kSmallModel;
    flags.insert(flags.end(), {"--type", GetParam().type, "--experts", GetParam().experts, "--seed", seed, "--out",
                               (dir / name).string()});
    const Outcome run = random_model(flags);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return read_file(dir / name);
  };
  const std::string first = make("a", "1");
  EXPECT_EQ(make("b", "1"), first);
  EXPECT_NE(make("c", "2"), first);
  const json got = run_terrace_json(
      {"generate", "--quiet", "--json", "-m", (dir / "a").string(), "-p", "hello", "-n", "20", "--temperature", "1"});
  EXPECT_EQ(got["stop_reason"], "limit");
  EXPECT_EQ(got["tokens"].size(), 20u);
  EXPECT_EQ(run_terrace_json({"inspect", "--json", (dir / "a").string()})["runs"]["model"], true);
}

// With 8 experts the q4_k_m mix has Q5_K and Q8_0 in the trunk.
INSTANTIATE_TEST_SUITE_P(Types, RandomModel,
                         ::testing::Values(TypeAndExperts{"f32", "16"}, TypeAndExperts{"f16", "16"},
                                           TypeAndExperts{"bf16", "16"}, TypeAndExperts{"q8_0", "16"},
                                           TypeAndExperts{"q4_0", "16"}, TypeAndExperts{"q4_k_m", "16"},
                                           TypeAndExperts{"q4_k_m", "8"}),
                         [](const auto& tested) {
                           return std::string(tested.param.type) + "_" + tested.param.experts + "_experts";
                         });

TEST(RandomModelProgram, Refusals_AreOneLine) {
  struct Case {
    Arguments arguments;
    int exit_code;
    const char* part;
  };
  for (const Case& c :
       {Case{{}, 2, "--out is required"}, Case{{"--type", "q9", "--out", "x"}, 2, "q4_k_m"},
        Case{{"--arch", "llama", "--out", "x"}, 2, "qwen3moe"}, Case{{"--layers", "-1", "--out", "x"}, 2, "--layers"},
        Case{{"--layers", "0", "--out", "x"}, 2, "--layers 0"},
        Case{{"--experts", "4", "--top-k", "5", "--out", "x"}, 2, "--top-k 5"},
        Case{{"--vocab", "9223372036854775808", "--out", "x"}, 2, "--vocab"},
        Case{{"--lyers", "2", "--out", "x"}, 2, "--lyers"}, Case{{"--out", "/nowhere/x"}, 1, "/nowhere/x"}}) {
    const Outcome run = random_model(c.arguments);
    EXPECT_EQ(run.exit_code, c.exit_code) << run.err;
    EXPECT_TRUE(run.err.starts_with("terrace-random-model: ")) << run.err;
    EXPECT_NE(run.err.find(c.part), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  EXPECT_FALSE(std::filesystem::exists("x"));
}

// A file is made under another name and renamed, which would replace a device or a pipe. (A pipe: the test may run as
// root, and a device that is gone is gone for everybody.)
TEST(RandomModelProgram, WhatIsNoFile_IsNotReplaced) {
  const TempDir dir;
  const auto pipe = dir / "pipe";
  ASSERT_EQ(run_program({"/usr/bin/mkfifo", pipe.string()}).exit_code, 0);
  const Outcome run = random_model({"--layers", "1", "--vocab", "300", "--out", pipe.string()});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err, "terrace-random-model: " + pipe.string() + ": is no regular file and is not replaced\n");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

}  // namespace cli_inspect_test
}  // namespace terrace::test
