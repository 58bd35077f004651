// What `terrace generate` promises about its output, whatever the model says.
#include <gtest/gtest.h>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/terminal_process.h"

namespace terrace::test {
namespace cli_generate_test {

const char* kPrompt = "Once upon a time, there was a little";

Arguments generate(const Arguments& flags) {
  Arguments arguments = {"generate", "--quiet", "-m", demo_model().string()};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

// The text of a run without --json: the newline at its end is the program's.
std::string text_of(const Arguments& flags, const std::string& input = "") {
  const Outcome run = run_terrace(generate(flags), 0, input);
  EXPECT_EQ(run.err, "") << "--quiet";
  EXPECT_TRUE(run.out.ends_with('\n'));
  return run.out.substr(0, run.out.size() - 1);
}

json json_of(Arguments flags) {
  flags.emplace_back("--json");
  return run_terrace_json(generate(flags));
}

// A model of random weights with a small vocabulary: at a high temperature it makes any bytes in any order.
std::filesystem::path babbling_model(const TempDir& dir) {
  const auto path = dir / "babble.gguf";
  const Outcome made = run_program({program("terrace-random-model"),
                                    "--layers",
                                    "1",
                                    "--d-model",
                                    "256",
                                    "--heads",
                                    "2",
                                    "--kv-heads",
                                    "1",
                                    "--head-dim",
                                    "64",
                                    "--experts",
                                    "4",
                                    "--top-k",
                                    "2",
                                    "--ff",
                                    "256",
                                    "--vocab",
                                    "300",
                                    "--context",
                                    "1024",
                                    "--type",
                                    "q8_0",
                                    "--seed",
                                    "5",
                                    "--out",
                                    path.string()});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  return path;
}

const Arguments kBabble = {"--temperature", "10", "--top-k",      "0",  "--top-p", "1",
                           "--min-p",       "0",  "--max-tokens", "400"};

TEST(GenerateNotes, KernelOfEachWeightType_SaidOnce) {
  const Outcome run = run_terrace({"generate", "--prompt", kPrompt, "--max-tokens", "1", "--isa", "scalar"});
  const std::string line =
      "terrace: kernels: F32 dot_rows_f32_scalar, Q4_K dot_rows_q4_k_scalar, Q6_K dot_rows_q6_k_scalar\n";
  const std::size_t at = run.err.find(line);
  ASSERT_NE(at, std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("kernels:", at + line.size()), std::string::npos) << run.err;
}

TEST(GenerateJson, HasTheNamedKeys) {
  const Outcome run = run_terrace(generate({"--prompt", kPrompt, "--max-tokens", "3", "--json", "--seed", "9"}));
  const auto got = nlohmann::ordered_json::parse(run.out);
  expect_shape(got, {{"text", "string"},
                     {"tokens", "array"},
                     {"stop_reason", "string"},
                     {"logits_xxh3", "array"},
                     {"timings", "object"},
                     {"legs", "array"},
                     {"model", "string"},
                     {"numerics_version", "number"},
                     {"seed", "number"},
                     {"threads", "number"},
                     {"cpus", "array"},
                     {"waiting", "string"}});
  expect_shape(got["timings"], {{"load_ms", "number"},
                                {"prompt_tokens", "number"},
                                {"prompt_ms", "number"},
                                {"prompt_tokens_per_second", "number"},
                                {"decode_tokens", "number"},
                                {"decode_ms", "number"},
                                {"decode_tokens_per_second", "number"}});
  expect_documented(got, {"What `generate` prints"}, {"sums_xxh3"});
  expect_documented_within(got, "What `generate` prints", "timings");
  ASSERT_EQ(got["legs"].size(), 1u);
  expect_leg_shape(got["legs"][0]);
  EXPECT_EQ(got["legs"][0]["name"], "host");
  EXPECT_EQ(got["legs"][0]["kind"], "host");
  EXPECT_EQ(got["legs"][0]["state"], "ok");
  EXPECT_EQ(got["legs"][0]["experts"], 6 * 32);
  EXPECT_EQ(got["seed"], 9);
  EXPECT_EQ(got["model"], demo_model().filename().string());
  ASSERT_EQ(got["logits_xxh3"].size(), 3u);
  EXPECT_EQ(got["logits_xxh3"][0].get<std::string>().size(), 16u);
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << "one line";
}

// The sums do not depend on how the prompt is cut, and do on the prompt.
TEST(GenerateJson, SumsOfTheExperts_AreHashedForEachToken) {
  const auto sums = [](const std::string& prompt, const std::string& batch) {
    const json got = json_of({"--prompt", prompt, "--max-tokens", "3", "--sums", "--batch", batch});
    expect_documented(got, {"What `generate` prints"});
    EXPECT_EQ(got["sums_xxh3"].size(), got["tokens"].size());
    return got["sums_xxh3"];
  };
  const json whole = sums(kPrompt, "64");
  EXPECT_EQ(sums(kPrompt, "2"), whole);
  EXPECT_NE(sums(std::string(kPrompt) + " a", "64")[0], whole[0]);
  const Outcome refused = run_terrace(generate({"--prompt", kPrompt, "--sums"}), 2);
  EXPECT_NE(refused.err.find("--sums: the hashes are shown by --json"), std::string::npos) << refused.err;
}

// Nine prompt tokens and two of the three made go through six layers of top 4.
TEST(GenerateJson, CountsRowsAndPairs) {
  const json leg = json_of({"--prompt", kPrompt, "--max-tokens", "3"})["legs"][0];
  EXPECT_EQ(leg["rows"], (9 + 2) * 6);
  EXPECT_EQ(leg["pairs"], (9 + 2) * 6 * 4);
}

TEST(GenerateJson, AFileNameThatIsNoUtf8_IsShownWithAReplacement) {
  const TempDir dir;
  const auto path = dir / "model-\xff.gguf";
  std::filesystem::create_symlink(demo_model(), path);
  const json got = run_terrace_json({"generate", "--quiet", "--json", "-m", path.string(), "-p", "x", "-n", "1"});
  EXPECT_EQ(got["model"], "model-\xef\xbf\xbd.gguf");
}

TEST(GenerateText, PromptFileAndStdin_AreThePromptToTheByte) {
  const TempDir dir;
  const std::string prompt = std::string(kPrompt) + "\n";  // the newline belongs to it
  write_file(dir / "prompt", prompt);
  const json expected = json_of({"--prompt", prompt, "-n", "8"});
  EXPECT_EQ(json_of({"--prompt-file", (dir / "prompt").string(), "-n", "8"})["tokens"], expected["tokens"]);
  EXPECT_EQ(text_of({"-", "-n", "8"}, prompt), expected["text"]);
  EXPECT_NE(json_of({"--prompt", kPrompt, "-n", "8"})["tokens"], expected["tokens"]);
}

TEST(GenerateText, Stream_IsTheSameText) {
  EXPECT_EQ(text_of({"-p", kPrompt, "-n", "40", "--stream"}), text_of({"-p", kPrompt, "-n", "40"}));
  Arguments flags = {"-p", kPrompt, "-n", "60", "--temperature", "1.5", "--seed", "4", "--stop", "the"};
  const std::string whole = text_of(flags);
  flags.emplace_back("--stream");
  EXPECT_EQ(text_of(flags), whole);
}

TEST(GenerateText, StopString_EndsBeforeIt) {
  const json free = json_of({"-p", kPrompt, "-n", "12"});
  const json stopped = json_of({"-p", kPrompt, "-n", "12", "--stop", "nowhere", "--stop", " who had"});
  EXPECT_EQ(free["text"], " boy called Richard, who had grown old and ");
  EXPECT_EQ(free["stop_reason"], "limit");
  EXPECT_EQ(stopped["text"], " boy called Richard,");
  EXPECT_EQ(stopped["stop_reason"], "stop");
  EXPECT_LT(stopped["tokens"].size(), free["tokens"].size());
}

TEST(GenerateText, EndOfTurn_StopsAndIsNotShown) {
  const json chat = read_json(data_dir() / "demo" / "cases.json")["cases"]["chat_system"];
  const Arguments flags = {"-p", chat["text"], "-n", "100", "--activations", "f32", "--kv", "f32"};
  const json got = json_of(flags);
  EXPECT_EQ(got["stop_reason"], "eos");
  EXPECT_EQ(got["tokens"], chat["greedy"]["tokens"]) << "the end token is in the list";
  EXPECT_EQ(got["text"].get<std::string>().find("<|"), std::string::npos);
}

TEST(GenerateText, NoSpecial_ControlTokensArePlainTextAndShown) {
  const std::string prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
  const json special = json_of({"-p", prompt, "-n", "1"});
  const json plain = json_of({"-p", prompt, "-n", "1", "--no-special"});
  const json ids = run_terrace_json({"tokenize", "--quiet", "--no-special", prompt});
  EXPECT_EQ(plain["timings"]["prompt_tokens"], ids.size());
  EXPECT_LT(special["timings"]["prompt_tokens"], plain["timings"]["prompt_tokens"]);

  // Made tokens: an end token, shown only with --no-special. The prompt has no special token, so both runs are equal.
  const Arguments flags = {"-p", "The end.", "-n", "400", "--temperature", "0.7", "--seed", "7"};
  Arguments shown = flags;
  shown.emplace_back("--no-special");
  const json hidden_end = json_of(flags), shown_end = json_of(shown);
  ASSERT_EQ(hidden_end["stop_reason"], "eos") << "choose another seed";
  EXPECT_EQ(hidden_end["tokens"], shown_end["tokens"]);
  const std::string end = hidden_end["tokens"].back() == 0 ? "<|endoftext|>" : "<|im_end|>";
  EXPECT_EQ(shown_end["text"], hidden_end["text"].get<std::string>() + end);
}

TEST(GenerateText, FullContext_EndsAndSaysSo) {
  const Outcome run = run_terrace(generate({"-p", kPrompt, "--ctx-size", "12", "-n", "100", "--json"}));
  const json got = json::parse(run.out);
  EXPECT_EQ(got["stop_reason"], "context");
  EXPECT_EQ(got["tokens"].size(), 4u)
      << "nine prompt tokens and three made fill it; the fourth is chosen, not computed";
  EXPECT_EQ(run.err, "terrace: the context of 12 tokens is full and the text may be unfinished; raise --ctx-size\n");
}

TEST(GenerateText, NothingToMake_IsAnEmptyText) {
  const json got = json_of({"-p", kPrompt, "-n", "0"});
  EXPECT_EQ(got["text"], "");
  EXPECT_EQ(got["tokens"].size(), 0u);
  EXPECT_EQ(got["stop_reason"], "limit");
}

TEST(GenerateSampling, SeedDecides) {
  const Arguments flags = {"-p",      kPrompt, "-n",      "24", "--temperature", "1",
                           "--top-k", "0",     "--top-p", "1",  "--min-p",       "0"};
  const auto with_seed = [&](const char* seed) {
    Arguments all = flags;
    all.insert(all.end(), {"--seed", seed});
    return json_of(all);
  };
  const json one = with_seed("1"), again = with_seed("1"), two = with_seed("2");
  EXPECT_EQ(one["tokens"], again["tokens"]);
  EXPECT_EQ(one["logits_xxh3"], again["logits_xxh3"]);
  EXPECT_NE(one["tokens"], two["tokens"]);
  EXPECT_EQ(with_seed("18446744073709551615")["seed"], 18446744073709551615u);
}

TEST(GenerateSampling, EveryFlagReachesTheSampler) {
  const Arguments hot = {"-p", kPrompt, "-n", "24", "--temperature", "2", "--seed", "3"};
  const auto with = [&](const Arguments& more) {
    Arguments all = hot;
    all.insert(all.end(), more.begin(), more.end());
    return json_of(all)["tokens"];
  };
  const json greedy = json_of({"-p", kPrompt, "-n", "24"})["tokens"];
  EXPECT_NE(with({}), greedy);
  // Each of these leaves one candidate, the best.
  EXPECT_EQ(with({"--top-k", "1"}), greedy);
  EXPECT_EQ(with({"--top-p", "0"}), greedy);
  EXPECT_EQ(with({"--min-p", "1"}), greedy);
  // Penalties change what is best.
  EXPECT_NE(with({"--top-k", "1", "--repeat-penalty", "5"}), greedy);
  EXPECT_NE(with({"--top-k", "1", "--presence-penalty", "20"}), greedy);
  EXPECT_NE(with({"--top-k", "1", "--frequency-penalty", "20"}), greedy);
  EXPECT_EQ(with({"--top-k", "1", "--repeat-penalty", "5", "--repeat-last-n", "0"}), greedy);
}

TEST(GenerateUtf8, RandomBytes_NeverHalfACharacter) {
  const TempDir dir;
  const std::string model = babbling_model(dir).string();
  Arguments flags = {"generate", "--quiet", "-m", model, "-p", "x"};
  flags.insert(flags.end(), kBabble.begin(), kBabble.end());
  const std::string whole = run_terrace(flags).out;
  // json::parse() and dump() refuse text that is not UTF-8.
  EXPECT_NO_THROW((void)json(whole).dump());
  EXPECT_NE(whole.find("\xef\xbf\xbd"), std::string::npos) << "no broken sequence came up; choose another seed";
  flags.emplace_back("--stream");
  EXPECT_EQ(run_terrace(flags).out, whole);
  flags.back() = "--json";
  EXPECT_EQ(run_terrace_json(flags)["text"].get<std::string>() + "\n", whole);
}

// What a reader of the pipe sees: each write ends at a character's end.
TEST(GenerateUtf8, Stream_WritesWholeCharacters) {
  const std::string tokens = text_of({"-p", "Café 猫", "-n", "30", "--temperature", "3", "--seed", "2", "--stream"});
  EXPECT_NO_THROW((void)json(tokens).dump());
}

// "localhost" is two addresses, and the node listens on one of them: both planes have to find the same.
TEST(GenerateWithNode, ReachedByAName_WhicheverOfItsAddressesListens) {
  const Arguments short_text = {"-p", kPrompt, "-n", "8"};
  const std::string alone = text_of(short_text);
  for (const char* const listen : {"127.0.0.1:0", "[::1]:0"}) {
    std::optional<NodeProcess> node;
    try {
      node.emplace(Arguments{"--listen", listen});
    } catch (const std::runtime_error&) {
      if (std::string(listen) == "127.0.0.1:0") throw;
      GTEST_SKIP() << "this machine has no IPv6 loopback";
    }
    Arguments flags = short_text;
    flags.insert(flags.end(), {"--node", "localhost" + node->address().substr(node->address().rfind(':'))});
    EXPECT_EQ(text_of(flags), alone) << listen;
    node->stop();
  }
}

TEST(GenerateNotes, DemoModelIsNamed_AndQuietSilencesAll) {
  const Outcome loud = run_terrace({"generate", "-p", kPrompt, "-n", "2"});
  EXPECT_NE(loud.err.find("no --model given, using the demo model "), std::string::npos) << loud.err;
  EXPECT_NE(loud.err.find("6 layers, 32 experts, top 4"), std::string::npos) << loud.err;
  EXPECT_NE(loud.err.find("ended by limit"), std::string::npos) << loud.err;
  const Outcome quiet = run_terrace({"generate", "-p", kPrompt, "-n", "2", "--quiet"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, loud.out);
}

// On a terminal a line of its own shows how far the weights are and goes when they are there; elsewhere there are lines
// only, and none with --quiet.
TEST(GenerateNotes, TransferToANode_IsShownOnATerminal_AndLeavesWholeLines) {
  NodeProcess node;
  const Arguments run =
      terrace({"generate", "-m", demo_model().string(), "-p", "x", "-n", "1", "--node", node.address()});
  const std::string ready = "terrace: " + node.address() + ": ready, 96 slabs";
  TerminalProcess shown(run, {"XDG_CACHE_HOME=" + cache_dir().string()});
  EXPECT_EQ(shown.wait(), 0);
  EXPECT_NE(shown.shown().find(node.address() + ": "), std::string::npos);
  EXPECT_NE(shown.shown().find("\r\x1b[K"), std::string::npos) << "nothing was redrawn";
  EXPECT_NE(shown.shown().find("\r\x1b[K" + ready), std::string::npos)
      << "the line of progress stands where the next one begins:\n"
      << shown.shown();
  const Outcome plain = run_program(run);
  EXPECT_EQ(plain.err.find('\x1b'), std::string::npos);
  EXPECT_NE(plain.err.find(ready), std::string::npos);
  Arguments silent = run;
  silent.emplace_back("--quiet");
  TerminalProcess quiet(silent);
  EXPECT_EQ(quiet.wait(), 0);
  EXPECT_EQ(quiet.shown().find("terrace"), std::string::npos) << quiet.shown();
  EXPECT_EQ(quiet.shown().find('\x1b'), std::string::npos);
  node.stop();
}

}  // namespace cli_generate_test
}  // namespace terrace::test
