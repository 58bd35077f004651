#include "common/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace terrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

enum class Kv { kF16, kF32 };

struct Values {
  std::uint32_t max_tokens = 128;
  std::int64_t offset = 0;
  std::uint64_t seed = 7;
  float temperature = 0.8f;
  double share = 0.5;
  bool stream = false;
  std::string prompt;
  std::optional<std::uint32_t> threads;
  std::optional<std::string> file;
  std::vector<std::string> node;
  std::filesystem::path model;
  Bytes ram{1ull << 30};
  std::chrono::nanoseconds wait = std::chrono::milliseconds(20);
  Kv kv = Kv::kF16;
  std::optional<Kv> forced;
};

class Options : public ::testing::Test {
 protected:
  Options() : table_("terrace generate", "Writes a continuation.") {
    dir_ =
        std::filesystem::path(::testing::TempDir()) /
        ("options_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
    table_.group("Model");
    table_.add("model", &v_.model, "the GGUF file").short_name('m').default_text("the demo model");
    table_.add("node", &v_.node, "a tier node").value_name("HOST:PORT");
    table_.add("ram", &v_.ram, "memory for experts").range(1, 1ull << 40);
    table_.add("wait", &v_.wait, "longest wait");
    table_.add("threads", &v_.threads, "threads").short_name('t').range(1, 1024);
    table_.add_choice("kv", &v_.kv, {{"f16", Kv::kF16}, {"f32", Kv::kF32}}, "what keys and values are stored as");
    table_.add_choice("forced", &v_.forced, {{"f16", Kv::kF16}, {"f32", Kv::kF32}}, "an optional choice");
    table_.group("Sampling");
    table_.add("max-tokens", &v_.max_tokens, "stop after so many").short_name('n').range(0, 1 << 30);
    table_.add("offset", &v_.offset, "any whole number");
    table_.add("seed", &v_.seed, "seed of the sampler");
    table_.add("temperature", &v_.temperature, "randomness").range(0, 100);
    table_.add("share", &v_.share, "any number");
    table_.add("prompt", &v_.prompt, "text to continue");
    table_.add("stream", &v_.stream, "print as it comes");
    table_.add_positional("FILE", &v_.file, "where to read from");
    table_.add_sibling("terrace-node", {"listen", "model"});
  }
  ~Options() override { std::filesystem::remove_all(dir_); }

  Result<ParseOutcome> parse(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) {
    return table_.parse(arguments, Environment(std::move(environment)), dir_);
  }
  std::string error_of(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) {
    const auto outcome = parse(std::move(arguments), std::move(environment));
    if (outcome.ok()) return "(no error)";
    EXPECT_EQ(outcome.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(outcome.error().text(), Not(HasSubstr("\n")));
    return outcome.error().text();
  }
  std::string write_config(const std::string& text, const std::string& name = "terrace.toml") {
    std::ofstream(dir_ / name) << text;
    return (dir_ / name).string();
  }

  Values v_;
  OptionTable table_;
  std::filesystem::path dir_;
};

TEST_F(Options, NothingGiven_LeavesDefaults) {
  const auto outcome = parse({});
  ASSERT_TRUE(outcome.ok()) << outcome.error().text();
  EXPECT_EQ(v_.max_tokens, 128u);
  EXPECT_FALSE(v_.threads.has_value());
  EXPECT_FALSE(outcome->print.has_value());
  EXPECT_FALSE(outcome->config_file.has_value());
  EXPECT_THAT(outcome->notes, IsEmpty());
}

TEST_F(Options, EveryTypeIsReadFromTheCommandLine) {
  const auto outcome = parse({"--max-tokens",
                              "5",
                              "--offset=-9223372036854775808",
                              "--seed",
                              "18446744073709551615",
                              "--temperature",
                              "0",
                              "--share",
                              "-1e-3",
                              "--stream",
                              "--prompt",
                              "a b",
                              "-t4",
                              "--node",
                              "box1:9000",
                              "--node=box2:9000",
                              "-m",
                              "x.gguf",
                              "--ram",
                              "1.5G",
                              "--wait",
                              "250us",
                              "--kv",
                              "f32",
                              "--forced",
                              "f16",
                              "input"});
  ASSERT_TRUE(outcome.ok()) << outcome.error().text();
  EXPECT_EQ(v_.max_tokens, 5u);
  EXPECT_EQ(v_.offset, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(v_.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(v_.temperature, 0.0f);
  EXPECT_EQ(v_.share, -1e-3);
  EXPECT_TRUE(v_.stream);
  EXPECT_EQ(v_.prompt, "a b");
  EXPECT_EQ(v_.threads, 4u);
  EXPECT_THAT(v_.node, ElementsAre("box1:9000", "box2:9000"));
  EXPECT_EQ(v_.model, "x.gguf");
  EXPECT_EQ(v_.ram, Bytes{1536ull << 20});
  EXPECT_EQ(v_.wait, std::chrono::microseconds(250));
  EXPECT_EQ(v_.kv, Kv::kF32);
  EXPECT_EQ(v_.forced, Kv::kF16);
  EXPECT_EQ(v_.file, "input");
}

// Text is the user's: nothing in it is syntax to us.
TEST_F(Options, TextComesThroughAsItIs) {
  for (const std::string text :
       {"[a,b]", "{}", "%%", "", " x ", "\"q\"", "--model", "a=b", "'", "++", "-", "/h", "\xff\n"}) {
    v_.prompt = "unset";
    ASSERT_TRUE(parse({"--prompt", text}).ok()) << text;
    EXPECT_EQ(v_.prompt, text);
    if (text.starts_with("--")) continue;
    ASSERT_TRUE(parse({"--prompt=" + text}).ok()) << text;
    EXPECT_EQ(v_.prompt, text);
  }
}

TEST_F(Options, DashIsAnArgument_AndTwoDashesEndTheFlags) {
  ASSERT_TRUE(parse({"--stream", "-"}).ok());
  EXPECT_EQ(v_.file, "-");
  ASSERT_TRUE(parse({"--", "--prompt"}).ok());
  EXPECT_EQ(v_.file, "--prompt");
  ASSERT_TRUE(parse({"--prompt", "p", "--", "--model="}).ok());
  EXPECT_EQ(v_.file, "--model=");
  EXPECT_EQ(v_.prompt, "p");
}

TEST_F(Options, GivenTwice_LastCounts) {
  ASSERT_TRUE(parse({"-n", "1", "-n", "2"}).ok());
  EXPECT_EQ(v_.max_tokens, 2u);
}

TEST_F(Options, FlagsCanBeSwitchedOffAgain) {
  write_config("stream = true\n");
  ASSERT_TRUE(parse({}).ok());
  EXPECT_TRUE(v_.stream);
  ASSERT_TRUE(parse({"--stream=false"}).ok());
  EXPECT_FALSE(v_.stream);
  EXPECT_THAT(error_of({"--stream=maybe"}), HasSubstr("stream"));
}

TEST_F(Options, Precedence_FlagEnvironmentFileDefault) {
  const std::string file =
      write_config("max-tokens = 10\nseed = 10\noffset = 10\nnode = ['file:1', 'file:2']\n", "x.toml");
  const auto outcome = parse({"--config", file, "--max-tokens", "30"},
                             {{"TERRACE_MAX_TOKENS", "20"}, {"TERRACE_SEED", "20"}, {"TERRACE_NODE", "env:1,env:2"}});
  ASSERT_TRUE(outcome.ok()) << outcome.error().text();
  EXPECT_EQ(v_.max_tokens, 30u);
  EXPECT_EQ(v_.seed, 20u);
  EXPECT_EQ(v_.offset, 10);
  EXPECT_EQ(v_.share, 0.5);
  EXPECT_THAT(v_.node, ElementsAre("env:1", "env:2"));
  EXPECT_EQ(outcome->config_file, file);
}

TEST_F(Options, EmptyVariableCountsAsAbsent) {
  ASSERT_TRUE(parse({}, {{"TERRACE_MAX_TOKENS", ""}}).ok());
  EXPECT_EQ(v_.max_tokens, 128u);
}

TEST_F(Options, DefaultFileIsReadAndSaid) {
  write_config("max-tokens = 3\n");
  const auto outcome = parse({});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(v_.max_tokens, 3u);
  ASSERT_EQ(outcome->notes.size(), 1u);
  EXPECT_THAT(outcome->notes[0], HasSubstr("terrace.toml"));
}

TEST_F(Options, OwnSectionWins_OtherProgramsKeysAreSkipped) {
  write_config("listen = 'x:1'\nmax-tokens = 1\n[generate]\nmax-tokens = 2\n[terrace-node]\nlisten = 'y:1'\n");
  ASSERT_TRUE(parse({}).ok());
  EXPECT_EQ(v_.max_tokens, 2u);
}

TEST_F(Options, TomlTypes) {
  write_config(
      "ram = '2G'\nwait = '1s'\nkv = 'f32'\ntemperature = 1.5\nshare = 2\nthreads = 8\nnode = 'one:1'\nprompt = "
      "\"\"\"a\nb\"\"\"\n");
  const auto outcome = parse({});
  ASSERT_TRUE(outcome.ok()) << outcome.error().text();
  EXPECT_EQ(v_.ram, Bytes{2ull << 30});
  EXPECT_EQ(v_.wait, std::chrono::seconds(1));
  EXPECT_EQ(v_.kv, Kv::kF32);
  EXPECT_EQ(v_.temperature, 1.5f);
  EXPECT_EQ(v_.share, 2.0);
  EXPECT_EQ(v_.threads, 8u);
  EXPECT_THAT(v_.node, ElementsAre("one:1"));
  EXPECT_EQ(v_.prompt, "a\nb");
}

TEST_F(Options, UnknownFlag_NamesItAndTheNearest) {
  EXPECT_THAT(error_of({"--max-token", "5"}), HasSubstr("unknown flag --max-token; did you mean --max-tokens?"));
  EXPECT_THAT(error_of({"--max_tokens=5"}), HasSubstr("unknown flag --max_tokens; did you mean --max-tokens?"));
  EXPECT_THAT(error_of({"--zzzzzzzz"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(error_of({"-x"}), HasSubstr("unknown flag -x"));
  EXPECT_THAT(error_of({"a", "b"}), HasSubstr("unexpected argument 'b'"));
}

TEST_F(Options, UnknownKeyOrSection_NamesFileLineAndTheNearest) {
  write_config("\nmax_tokens = 5\n");
  EXPECT_THAT(error_of({}), HasSubstr("terrace.toml:2: max_tokens is no option; did you mean max-tokens?"));
  write_config("[generate]\nlisten = 'x:1'\n");
  EXPECT_THAT(error_of({}), HasSubstr("terrace.toml:2: listen is no option"));
  write_config("[generat]\n");
  EXPECT_THAT(error_of({}), HasSubstr("terrace.toml:1: [generat] is no program; did you mean generate?"));
  write_config("config = 'y.toml'\n");
  EXPECT_THAT(error_of({}), HasSubstr("config is no option"));
}

TEST_F(Options, UnknownVariable_IsNotedNotRefused) {
  const auto outcome =
      parse({}, {{"TERRACE_MAX_TOKEN", "5"}, {"TERRACE_TEST_VECTORS", "x"}, {"TERRACE_LISTEN", "x:1"}});
  ASSERT_TRUE(outcome.ok());
  ASSERT_EQ(outcome->notes.size(), 1u);
  EXPECT_THAT(outcome->notes[0],
              HasSubstr("TERRACE_MAX_TOKEN is set, but no option reads it; did you mean TERRACE_MAX_TOKENS?"));
}

TEST_F(Options, BadNumbers_OneLineWithFlagValueAndRange) {
  EXPECT_EQ(error_of({"--max-tokens", "-1"}), "--max-tokens: '-1' is not a whole number from 0 to 1073741824");
  EXPECT_EQ(error_of({"--offset", "9223372036854775808"}),
            "--offset: '9223372036854775808' is not a whole number from -9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(error_of({"--seed", "-1"}), "--seed: '-1' is not a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(error_of({"--temperature", "nan"}), "--temperature: 'nan' is not a number from 0 to 100");
  EXPECT_EQ(error_of({"--share", "inf"}), "--share: 'inf' is not a finite number");
  for (const char* flag : {"--max-tokens", "--offset", "--seed", "--temperature", "--share", "--threads"})
    for (const char* value :
         {"", " 1", "1 ", "1x", "0x10", "+1", "1e999", "nan", "-inf", "9223372036854775808.5.", "--"})
      EXPECT_THAT(error_of({flag, value}), HasSubstr(flag)) << value;
  EXPECT_EQ(error_of({}, {{"TERRACE_THREADS", "0"}}), "TERRACE_THREADS: '0' is not a whole number from 1 to 1024");
  write_config("temperature = nan\n");
  EXPECT_THAT(error_of({}), HasSubstr("terrace.toml:1: temperature: 'nan' is not a number from 0 to 100"));
  write_config("threads = 1979-05-27\n");
  EXPECT_THAT(error_of({}), HasSubstr("terrace.toml:1: threads: takes text, a number, true or false"));
  write_config("threads = [1]\n");
  EXPECT_THAT(error_of({}), HasSubstr("takes one value"));
}

TEST_F(Options, BadSizesTimesAndChoices) {
  EXPECT_EQ(error_of({"--ram", "2T"}), "--ram: '2T' is not a size from 1B to 1T");
  EXPECT_THAT(error_of({"--ram", "24X"}), HasSubstr("--ram: '24X' is not a size; a size is written 24G"));
  EXPECT_THAT(error_of({"--wait", "20"}), HasSubstr("--wait: '20' is not a time; a time is written 20ms"));
  EXPECT_EQ(error_of({"--kv", "f64"}), "--kv: 'f64' is not one of f16, f32");
  EXPECT_EQ(error_of({"--model", ""}), "--model: '' is not a file name");
}

TEST_F(Options, FlagWithoutItsValue_IsNamed) {
  EXPECT_THAT(error_of({"--max-tokens"}), HasSubstr("--max-tokens: a value is missing"));
}

TEST_F(Options, BrokenOrMissingFile_IsNamed) {
  EXPECT_THAT(error_of({"--config", write_config("max-tokens = \n")}), HasSubstr("terrace.toml:1: "));
  const auto missing = parse({"--config", (dir_ / "none.toml").string()});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().text(), HasSubstr("none.toml"));
  const auto directory = parse({"--config", dir_.string()});
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(directory.error().text(), HasSubstr("is a directory"));
  const auto unreadable = parse({"--config", "/proc/self/mem"});  // opens, and nothing is mapped at address 0
  ASSERT_FALSE(unreadable.ok()) << "it is no empty configuration";
  EXPECT_EQ(unreadable.error().code(), ErrorCode::kIo);
}

TEST_F(Options, RequiredAndMissing_IsNamed) {
  OptionTable table("terrace inspect", "Shows a file.");
  std::string file;
  table.add_positional("FILE", &file, "a GGUF file").required();
  const auto outcome = table.parse({}, Environment(), dir_);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().text(), HasSubstr("FILE is missing"));
}

TEST_F(Options, Help_ListsEveryOptionWithItsDefault) {
  const auto outcome = parse({"--max-tokens", "-5", "--help"});
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->print.has_value());
  for (const char* part : {"usage: terrace generate [options] [FILE]", "-n, --max-tokens N", "default 128",
                           "--kv f16|f32", "default f16", "default the demo model", "default 1G", "may be repeated",
                           "(1 to 1024)", "(at least 0; default 128)", "--print-config", "-h, --help", "Sampling:\n"})
    EXPECT_THAT(*outcome->print, HasSubstr(part));
  std::size_t begin = 0;
  for (std::size_t end; (end = outcome->print->find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 120u) << outcome->print->substr(begin, end - begin);
}

TEST_F(Options, Version) {
  const auto outcome = parse({"--version"});
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(*outcome->print, ::testing::StartsWith("terrace generate 0."));
}

TEST_F(Options, PrintConfig_ReadBackGivesTheSameValues) {
  const std::string prompt = "a \"quoted\" \\ line\nand\ttab";
  auto outcome =
      parse({"--print-config", "-n", "9", "--prompt", prompt, "--node", "a:1", "--node", "b:2", "--ram", "3M"},
            {{"TERRACE_SEED", "5"}});
  ASSERT_TRUE(outcome.ok());
  const std::string text = outcome->print.value();
  EXPECT_THAT(text, HasSubstr("max-tokens = 9"));
  EXPECT_THAT(text, HasSubstr("# flag"));
  EXPECT_THAT(text, HasSubstr("# environment"));
  EXPECT_THAT(text, HasSubstr("# threads is not set"));
  v_.max_tokens = 0;
  v_.prompt.clear();
  v_.node.clear();
  v_.ram = Bytes{1};
  v_.seed = 0;
  outcome = parse({"--config", write_config(text, "printed.toml")});
  ASSERT_TRUE(outcome.ok()) << outcome.error().text() << "\n" << text;
  EXPECT_EQ(v_.max_tokens, 9u);
  EXPECT_EQ(v_.prompt, prompt);
  EXPECT_THAT(v_.node, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(v_.ram, Bytes{3u << 20});
  EXPECT_EQ(v_.seed, 5u);
}

}  // namespace
}  // namespace terrace
