// What the programs say when something is wrong: one line on stderr that names it, nothing on stdout, and the exit code
// that tells usage (2) from failure (1).
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace cli_error_test {

constexpr int kFailure = 1, kUsage = 2;

struct Case {
  const char* name;
  Arguments arguments;
  int exit_code;
  Arguments parts;  // that the line has
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// "[[...[]...]]", so many deep.
std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// In a folder of its own, with some files that no command wants.
class CliError : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    write_file(dir_ / "empty.gguf", "");
    write_file(dir_ / "text.gguf", "this is no model");
    write_file(dir_ / "ids.json", "[1, 2, 3]");
    write_file(dir_ / "words.json", "[1, \"two\"]");
    write_file(dir_ / "huge.json", "[1, 4096]");
    write_file(dir_ / "object.json", "{}");
    write_file(dir_ / "nested.json", nested(1'000'000));
    write_file(dir_ / "wide.json", "[9223372036854775808]");
    write_file(dir_ / "negative.json", "[1, -1]");
    write_file(dir_ / "nan.json", "[NaN]");
    write_file(dir_ / "nested-share.json", nested(1'000'000));
    write_file(dir_ / "nested-layers.json", R"({"layers":[)" + nested(1'000'000) + "]}");
    write_file(dir_ / "share.json", R"({"layers":[{"host":"0-30"}]})");
    write_file(dir_ / "shares.json", R"({"layers":[{"host":"0-31"},{"host":"0-31"}]})");
    write_file(dir_ / "utf8.txt", "");
  }
  const TempDir dir_;
};

TEST_P(CliError, OneLineThatNamesIt) {
  Arguments all = {program("terrace")};
  all.insert(all.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const Outcome run = run_in(dir_.path(), {}, all);
  EXPECT_EQ(run.exit_code, GetParam().exit_code) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.starts_with("terrace: ")) << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_TRUE(run.err.ends_with('\n'));
  for (const std::string& part : GetParam().parts) EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
}

// `terrace generate --quiet -p x` with more flags.
Arguments generate(const Arguments& flags) {
  Arguments all = {"generate", "--quiet", "-p", "x"};
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

const char* kLong = "Once upon a time there was a bear who lived near the river.";

INSTANTIATE_TEST_SUITE_P(
    Model, CliError,
    ::testing::Values(
        Case{"Missing", generate({"-m", "nowhere.gguf"}), kFailure, {"nowhere.gguf: cannot open it: No such file"}},
        Case{"Directory", generate({"-m", "."}), kUsage, {".: not a regular file"}},
        Case{"Empty", generate({"-m", "empty.gguf"}), kFailure, {"empty.gguf: it ends at offset 0, too short"}},
        Case{"Text",
             generate({"-m", "text.gguf"}),
             kFailure,
             {"text.gguf: no GGUF file: the magic (offset 0) is \"this\""}},
        Case{"InspectMissing", {"inspect", "nowhere.gguf"}, kFailure, {"nowhere.gguf"}},
        Case{"InspectNothing", {"inspect"}, kUsage, {"FILE is missing"}},
        Case{"InspectTwo", {"inspect", "a", "b"}, kUsage, {"unexpected argument 'b'"}},
        Case{"TokenizeMissing", {"tokenize", "--quiet", "-m", "nowhere.gguf", "x"}, kFailure, {"nowhere.gguf"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Words, CliError,
    ::testing::Values(
        Case{"UnknownFlag", generate({"--tempreature", "1"}), kUsage, {"--tempreature", "--temperature?"}},
        Case{"UnknownFlagFarOff", generate({"--xyzzy"}), kUsage, {"unknown flag --xyzzy", "--help"}},
        Case{"UnknownCommand", {"generat"}, kUsage, {"\"generat\"; did you mean generate?"}},
        Case{"UnknownCommandFarOff", {"xyzzy"}, kUsage, {"\"xyzzy\" (see `terrace --help`)"}},
        Case{"HelpOfNothing", {"help", "xyzzy"}, kUsage, {"\"xyzzy\""}},
        Case{"FlagBeforeCommand", {"--quiet", "generate"}, kUsage, {"--quiet"}},
        Case{"MissingValue", {"generate", "-p"}, kUsage, {"--prompt: a value is missing"}},
        Case{"UnknownIsa", generate({"--isa", "avx9"}), kUsage, {"--isa: 'avx9'", "scalar, avx2, avx512-vnni"}},
        Case{"UnknownKv", generate({"--kv", "f8"}), kUsage, {"--kv: 'f8'", "f16, f32"}},
        Case{"FlagWithAValue", generate({"--stream=perhaps"}), kUsage, {"--stream: 'perhaps'"}},
        Case{"VramOfNoCard", generate({"--vram", "1G"}), kUsage, {"--vram 1G", "--gpu 0"}},
        Case{"ACardTwice", generate({"--gpu", "0,1,0"}), kUsage, {"--gpu: card 0 is named twice"}},
        Case{"VramOfAnotherNumberOfCards",
             generate({"--gpu", "0", "--vram", "1G,2G"}),
             kUsage,
             {"--vram has 2 sizes and --gpu 1 card"}},
        Case{"F32OnACard",
             generate({"--gpu", "0", "--activations", "f32"}),
             kUsage,
             {"--activations f32", "leave out --gpu"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Numbers, CliError,
    ::testing::Values(
        Case{"Negative", generate({"-n", "-1"}), kUsage, {"--max-tokens: '-1' is not a whole number from 0"}},
        Case{"NotANumber", generate({"--temperature", "nan"}), kUsage, {"--temperature: 'nan' is not a number"}},
        Case{"Infinite", generate({"--top-p", "inf"}), kUsage, {"--top-p: 'inf' is not a number from 0 to 1"}},
        Case{"TwoTo63", generate({"-n", "9223372036854775808"}), kUsage, {"'9223372036854775808'"}},
        Case{"TwoTo64", generate({"--seed", "18446744073709551616"}), kUsage, {"--seed: '18446744073709551616'"}},
        Case{"Trailing", generate({"-n", "12x"}), kUsage, {"--max-tokens: '12x'"}},
        Case{"EmptyNumber", generate({"-n", ""}), kUsage, {"--max-tokens: ''"}},
        Case{"Fraction", generate({"--top-k", "1.5"}), kUsage, {"--top-k: '1.5'"}},
        Case{
            "NoThreads", generate({"--threads", "0"}), kUsage, {"--threads: '0' is not a whole number from 1 to 1024"}},
        Case{"NoBatch", generate({"--batch", "0"}), kUsage, {"--batch: '0'"}},
        Case{"ContextBeyondTheModels", generate({"--ctx-size", "4096"}), kUsage, {"4096", "2048"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Prompt, CliError,
    ::testing::Values(
        Case{"None", {"generate", "--quiet"}, kUsage, {"no prompt; give --prompt TEXT"}},
        Case{"Two", generate({"-f", "ids.json"}), kUsage, {"given more than once"}},
        Case{"TwoWithStdin", generate({"-"}), kUsage, {"given more than once"}},
        Case{"AsAWord", {"generate", "--quiet", "hello"}, kUsage, {"\"hello\" is no option", "--prompt TEXT"}},
        Case{"Empty", {"generate", "--quiet", "-p", ""}, kUsage, {"the prompt has no tokens"}},
        Case{"EmptyFile", {"generate", "--quiet", "-f", "empty.gguf"}, kUsage, {"the prompt has no tokens"}},
        Case{"MissingFile", {"generate", "--quiet", "-f", "nowhere.txt"}, kFailure, {"nowhere.txt: cannot be opened"}},
        Case{"Directory", {"generate", "--quiet", "-f", "."}, kUsage, {".: is a directory; give a file"}},
        Case{"LongerThanTheContext",
             {"generate", "--quiet", "-p", kLong, "--ctx-size", "5"},
             kFailure,
             {"tokens and the context holds 5; shorten the prompt or raise --ctx-size"}},
        Case{"EmptyStop", generate({"--stop", ""}), kUsage, {"--stop: a stop string must not be empty"}},
        Case{"BrokenStop", generate({"--stop", "\xff"}), kUsage, {"--stop: a stop string is not UTF-8"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Machines, CliError,
    ::testing::Values(
        Case{"NodeTwice", generate({"--node", "a:1", "--node", "a:1"}), kUsage, {"--node a:1 is given twice"}},
        Case{"NodeIsHost", generate({"--node", "host"}), kUsage, {"--node host", "HOST:PORT"}},
        Case{"NodeWithoutPort", generate({"--node", "box"}), kUsage, {"'box' has no port; an address is HOST:PORT"}},
        Case{"NodeWithoutPortAndModel",
             generate({"--node", "box", "-m", "nowhere.gguf"}),
             kUsage,
             {"--node: 'box' has no port"}},
        Case{"NodeNotThere",
             generate({"--node", "127.0.0.1:1"}),
             kFailure,
             {"127.0.0.1:1: cannot be reached (Connection refused)"}},
        Case{"NodesWithF32", generate({"--node", "127.0.0.1:1", "--activations", "f32"}), kUsage, {"leave out --node"}},
        Case{"ShareLeavesOut", generate({"--share", "host=0-30"}), kUsage, {"share: expert 31 is given to no leg"}},
        Case{"ShareDoubles", generate({"--share", "host=0-31,4"}), kUsage, {"share: expert 4 is given to host twice"}},
        Case{"ShareBeyond", generate({"--share", "host=0-32"}), kUsage, {"expert 32 is out of range", "0-31"}},
        Case{"ShareUnknownNode",
             generate({"--share", "host=0-15,box1:9000=16-31"}),
             kUsage,
             {"\"box1:9000\" is no leg of this run; the legs are host"}},
        Case{"ShareNoWords", generate({"--share", "host=some"}), kUsage, {"\"some\""}},
        Case{"ShareFileMissing", generate({"--share", "nowhere.json"}), kFailure, {"nowhere.json: cannot be opened"}},
        Case{"ShareFileLeavesOut", generate({"--share", "share.json"}), kUsage, {"share.json", "expert 31"}},
        Case{"ShareFileLayers", generate({"--share", "shares.json"}), kUsage, {"2 entries", "1, or 6"}},
        Case{"ShareFileNested",
             generate({"--share", "nested-share.json"}),
             kUsage,
             {"nested-share.json", "nested deeper than 100"}},
        Case{"ShareFileNestedLayers", generate({"--share", "nested-layers.json"}), kUsage, {"nested-layers.json"}},
        Case{"ShareFileShape", generate({"--share", "object.json"}), kUsage, {"object.json", "\"layers\""}},
        Case{"StatusWithoutNode", {"status"}, kUsage, {"--node is needed"}},
        Case{"StatusTwoNodes", {"status", "--node", "a:1", "--node", "b:1"}, kUsage, {"status shows one"}},
        Case{"StatusNotThere", {"status", "--node", "127.0.0.1:1"}, kFailure, {"127.0.0.1:1: cannot be reached"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Score, CliError,
    ::testing::Values(
        Case{"Nothing", {"score", "--quiet"}, kUsage, {"give either --text FILE or --ids FILE"}},
        Case{"Both", {"score", "--quiet", "--text", "a", "--ids", "b"}, kUsage, {"give either"}},
        Case{"Missing", {"score", "--quiet", "--text", "nowhere"}, kFailure, {"nowhere: cannot be opened"}},
        Case{"Short", {"score", "--quiet", "--ids", "ids.json"}, kUsage, {"3 tokens, fewer than one chunk of 512"}},
        Case{"Words", {"score", "--quiet", "--ids", "words.json"}, kUsage, {"words.json: entry 1 is \"two\""}},
        Case{
            "Beyond", {"score", "--quiet", "--ids", "huge.json"}, kUsage, {"entry 1 is 4096", "allowed are 0 to 4095"}},
        Case{"Nested",
             {"score", "--quiet", "--ids", "nested.json"},
             kUsage,
             {"nested.json: is no JSON array", "nested deeper than 100"}},
        Case{"HugeId", {"score", "--quiet", "--ids", "wide.json"}, kUsage, {"entry 0 is 9223372036854775808"}},
        Case{"NegativeId", {"score", "--quiet", "--ids", "negative.json"}, kUsage, {"entry 1 is -1"}},
        Case{"Nan", {"score", "--quiet", "--ids", "nan.json"}, kUsage, {"nan.json: is no JSON array"}},
        Case{"NoArray", {"score", "--quiet", "--ids", "object.json"}, kUsage, {"no JSON array"}},
        Case{"ChunkBeyondContext",
             {"score", "--quiet", "--ids", "ids.json", "--chunk", "3", "--ctx-size", "2"},
             kFailure,
             {"a chunk of 3 tokens does not fit the context of 2"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Tokens, CliError,
    ::testing::Values(Case{"NoText", {"tokenize", "--quiet"}, kUsage, {"no text"}},
                      Case{"NoIds", {"detokenize", "--quiet"}, kUsage, {"no ids"}},
                      Case{"CutArray", {"detokenize", "--quiet", "[1,"}, kUsage, {"no JSON array"}},
                      Case{"ListId", {"detokenize", "--quiet", "[[1]]"}, kUsage, {"entry 0 is of type array"}},
                      Case{"NegativeId", {"detokenize", "--quiet", "[-1]"}, kUsage, {"entry 0 is -1: no token id"}},
                      Case{"FractionId", {"detokenize", "--quiet", "[1.5]"}, kUsage, {"entry 0 is 1.5: no token id"}},
                      Case{"IdBeyond", {"detokenize", "--quiet", "[4096]"}, kUsage, {"4096", "0 to 4095"}},
                      Case{"NestedIds",
                           {"detokenize", "--quiet", nested(10'000)},
                           kUsage,
                           {"is no JSON array", "nested deeper than 100"}},
                      Case{"HugeId", {"detokenize", "--quiet", "[9223372036854775808]"}, kUsage, {"no token id"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(CliErrors, NoCommand_ShowsTheHelpAndIsUsage) {
  const Outcome run = run_terrace({}, kUsage);
  EXPECT_NE(run.out.find("usage: terrace COMMAND"), std::string::npos);
}

// Nothing falls back to the CPU unseen: no driver, no card, or a build without kernels for cards.
TEST(CliErrors, NoCard_EndsBothProgramsAndSaysWhatToDo) {
  for (const Arguments& all : {Arguments{program("terrace"), "generate", "--quiet", "-p", "x", "--gpu", "0"},
                               Arguments{program("terrace"), "plan", "--quiet", "--gpu", "0", "--vram", "1G"},
                               Arguments{program("terrace-node"), "--listen", "127.0.0.1:0", "--gpu", "0"}}) {
    const Outcome run = run_in("/", {"CUDA_VISIBLE_DEVICES="}, all);
    EXPECT_EQ(run.exit_code, kFailure) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find("leave out --gpu to compute on the CPU\n"), std::string::npos) << run.err;
  }
}

TEST(CliErrors, TwoCardsOfANode_AreRefusedWithWhatToDo) {
  const Outcome run = run_in("/", {}, {program("terrace-node"), "--listen", "127.0.0.1:0", "--gpu", "0,1"});
  EXPECT_EQ(run.exit_code, kUsage) << run.err;
  EXPECT_NE(run.err.find("start a terrace-node for each"), std::string::npos) << run.err;
}

TEST(CliErrors, NoCardThatMayBeMissing_SaysSoAndTheCpuComputes) {
  const Outcome run = run_in("/", {"CUDA_VISIBLE_DEVICES="},
                             {program("terrace"), "generate", "-p", "x", "-n", "1", "--gpu", "0", "--gpu-optional"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("the CPU computes (--gpu-optional)\n"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("leave out --gpu"), std::string::npos) << "it says what was done, not what to do: " << run.err;
}

// A place that takes no output, as the redirection of a shell line; /dev/full is a disk without room.
class FailingStdout : public ::testing::TestWithParam<Case> {};

TEST_P(FailingStdout, IsOneLineAndAFailure) {
  Arguments all = {program("terrace")};
  all.insert(all.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  for (const char* line : {"exec \"$@\" >&-", "exec \"$@\" >/dev/full"}) {
    const Outcome run = run_shell(line, all);
    EXPECT_EQ(run.exit_code, kFailure) << line << ", signal " << run.signal;
    EXPECT_EQ(run.err, "terrace: the result could not be written to stdout\n") << line;
  }
  // With no stream at all there is nobody to tell; the exit code stays.
  EXPECT_EQ(run_shell("exec \"$@\" <&- >&- 2>&-", all).exit_code, kFailure);
  // Nor is it an error that notes cannot be written.
  EXPECT_EQ(run_shell("exec \"$@\" 2>&-", all).exit_code, 0);
  EXPECT_EQ(run_shell("exec \"$@\" 2>/dev/full", all).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Commands, FailingStdout,
    ::testing::Values(Case{"Help", {"--help"}, 0, {}}, Case{"Version", {"--version"}, 0, {}},
                      Case{"GenerateHelp", {"generate", "--help"}, 0, {}},
                      Case{"Generate", {"generate", "--quiet", "-p", "x", "-n", "2"}, 0, {}},
                      Case{"Stream", {"generate", "--quiet", "-p", "x", "-n", "200", "--stream"}, 0, {}},
                      Case{"Json", {"generate", "--quiet", "-p", "x", "-n", "20", "--json"}, 0, {}},
                      Case{"PrintConfig", {"generate", "--print-config"}, 0, {}},
                      Case{"Inspect", {"inspect", demo_model().string()}, 0, {}},
                      Case{"Tokenize", {"tokenize", "--quiet", "x"}, 0, {}},
                      Case{"Detokenize", {"detokenize", "--quiet", "[9]"}, 0, {}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(FailingStdoutOfGenerate, Stream_EndsWhenNobodyReads) {
  // Without an end to its output this would take hours.
  const Outcome run =
      run_shell("{ \"$@\"; echo \"exit $?\" >&2; } | head -c1",
                {program("terrace"), "generate", "--quiet", "--stream", "-m",
                 (data_dir() / "tiny" / "tiny-mix.gguf").string(), "-p", "x", "-n", "1000", "--temperature", "1"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out.size(), 1u);
  EXPECT_EQ(run.err, "terrace: the result could not be written to stdout\nexit 1\n");
}

TEST(FailingStdoutOfOthers, NodeAndRandomModel_Help) {
  for (const char* name : {"terrace-node", "terrace-random-model"})
    EXPECT_EQ(run_shell("exec \"$@\" >/dev/full", {program(name), "--help"}).exit_code, kFailure) << name;
}

TEST(FailingStdin, IsAFailureThatSaysSo) {
  const Outcome run = run_shell("exec \"$@\" <&-", {program("terrace"), "generate", "--quiet", "-"});
  EXPECT_EQ(run.exit_code, kFailure);
  EXPECT_EQ(run.err, "terrace: standard input: cannot be read: Bad file descriptor\n");
}

}  // namespace cli_error_test
}  // namespace terrace::test
