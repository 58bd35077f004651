// Flag, environment, terrace.toml and default through the real programs.
#include <gtest/gtest.h>

#include <iterator>
#include <set>

#include "common/base/program_options.h"
#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace cli_config_test {

// The line of --print-config that sets `key`, or what stands for it where it is not set.
std::string line_of(const std::string& config, const std::string& key) {
  for (std::size_t begin = 0; begin < config.size();) {
    const std::size_t end = config.find('\n', begin);
    const std::string line = config.substr(begin, end - begin);
    if (line.starts_with(key + " = ") || line.starts_with("# " + key + " is not set")) return line;
    begin = end + 1;
  }
  return "no line for " + key;
}

class CliConfig : public ::testing::Test {
 protected:
  std::string print_config(const Arguments& variables, const Arguments& flags) const {
    Arguments all = {program("terrace"), "generate", "--print-config", "--quiet"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome run = run_in(dir_.path(), variables, all);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.err, "");
    return run.out;
  }
  const TempDir dir_;
};

TEST_F(CliConfig, FlagWinsOverEnvironmentOverFileOverDefault) {
  write_file(dir_ / "mine.toml", "max-tokens = 5\nseed = 5\ntop-k = 5\n[generate]\ntop-k = 6\n");
  const Arguments variables = {"TERRACE_MAX_TOKENS=7", "TERRACE_SEED=7"};
  const std::string config = print_config(variables, {"--config", "mine.toml", "-n", "9"});
  EXPECT_EQ(line_of(config, "max-tokens"), "max-tokens = 9                            # flag");
  EXPECT_EQ(line_of(config, "seed"), "seed = 7                                  # environment");
  EXPECT_EQ(line_of(config, "top-k"), "top-k = 6                                 # file");
  EXPECT_EQ(line_of(config, "sockets"), "sockets = 1                               # default");
  EXPECT_EQ(line_of(config, "threads").find("# threads is not set"), 0u);
}

// Not only what is printed: the run itself.
TEST_F(CliConfig, TheRunUsesWhatItPrints) {
  write_file(dir_ / "terrace.toml", "max-tokens = 3\nseed = 11\n");
  const auto run = [&](const Arguments& variables, const Arguments& flags) {
    Arguments all = {program("terrace"), "generate", "--quiet", "--json", "-p", "x"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = run_in(dir_.path(), variables, all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "") << "--quiet";
    return json::parse(outcome.out);
  };
  const json file = run({}, {});
  EXPECT_EQ(file["tokens"].size(), 3u);
  EXPECT_EQ(file["seed"], 11);
  EXPECT_EQ(run({"TERRACE_MAX_TOKENS=4"}, {})["tokens"].size(), 4u);
  EXPECT_EQ(run({"TERRACE_MAX_TOKENS=4"}, {"-n", "2"})["tokens"].size(), 2u);
  EXPECT_EQ(run({"TERRACE_CONFIG=/dev/null"}, {"-n", "2"})["seed"], 0) << "another file, not the one lying there";
}

TEST_F(CliConfig, PrintedConfig_IsAFileThatGivesTheSame) {
  const Arguments flags = {
      "-p",  "a \"quoted\"\nprompt", "-n",   "7",      "--stop",   "x",     "--stop", "y,z", "--kv",
      "f32", "--temperature",        "0.25", "--node", "box:9000", "--isa", "scalar"};
  const std::string printed = print_config({}, flags);
  write_file(dir_ / "printed.toml", printed);
  const std::string again = print_config({}, {"--config", "printed.toml"});
  for (const char* key : {"prompt", "max-tokens", "stop", "kv", "temperature", "node", "isa", "seed", "model"}) {
    const std::string before = line_of(printed, key), after = line_of(again, key);
    EXPECT_EQ(before.substr(0, before.find("  #")), after.substr(0, after.find("  #"))) << key;
  }
}

TEST_F(CliConfig, MisspeltKeyAndVariable_AreNamedWithASuggestion) {
  write_file(dir_ / "bad.toml", "seeed = 4\n");
  const Outcome key = run_in(dir_.path(), {}, {program("terrace"), "tokenize", "--config", "bad.toml", "x"});
  EXPECT_EQ(key.exit_code, 2);
  EXPECT_EQ(key.err, "terrace: bad.toml:1: seeed is no option; did you mean seed?\n");
  const Outcome variable =
      run_in(dir_.path(), {"TERRACE_MAX_TOKEN=4"}, {program("terrace"), "tokenize", "-m", demo_model().string(), "x"});
  EXPECT_EQ(variable.exit_code, 0) << "a variable may be another version's: a note, no error";
  EXPECT_EQ(variable.err,
            "terrace: TERRACE_MAX_TOKEN is set, but no option reads it; did you mean TERRACE_MAX_TOKENS?\n");
  const Outcome file = run_in(dir_.path(), {}, {program("terrace"), "tokenize", "--config", "nowhere.toml", "x"});
  EXPECT_EQ(file.exit_code, 1);
  EXPECT_EQ(file.err, "terrace: nowhere.toml: there is no such configuration file\n");
}

// One terrace.toml in a folder serves every command and the node; each takes what is its own.
TEST_F(CliConfig, OneFileServesBothPrograms) {
  write_file(dir_ / "terrace.toml",
             "threads = 1\nnode = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nmax-tokens = 3\n"
             "[generate]\nseed = 7\n[terrace-node]\nlisten = \"127.0.0.1:9471\"\nram = \"64M\"\n");
  const Outcome generate = run_in(dir_.path(), {}, {program("terrace"), "generate", "--print-config"});
  EXPECT_EQ(generate.exit_code, 0) << generate.err;
  EXPECT_EQ(line_of(generate.out, "seed"), "seed = 7                                  # file");
  EXPECT_EQ(line_of(generate.out, "node").find("node = [\"127.0.0.1:1\", \"127.0.0.1:2\"]"), 0u);
  EXPECT_EQ(generate.err, "terrace: options read from terrace.toml\n");
  const Outcome node = run_in(dir_.path(), {"TERRACE_TOP_K=3"}, {program("terrace-node"), "--print-config"});
  EXPECT_EQ(node.exit_code, 0) << node.err;
  EXPECT_EQ(line_of(node.out, "listen"), "listen = \"127.0.0.1:9471\"                 # file");
  EXPECT_EQ(line_of(node.out, "threads"), "threads = 1                               # file");
  const Outcome status = run_in(dir_.path(), {}, {program("terrace"), "status", "--node", "127.0.0.1:3"});
  EXPECT_NE(status.err.find("127.0.0.1:3: cannot be reached"), std::string::npos) << status.err;
}

// Each program knows the other's options by these lists, so they have to be what the programs have.
TEST(ProgramOptions, ListsAreWhatTheProgramsSay) {
  EXPECT_EQ(names_in_help(program("terrace-node")),
            std::set<std::string>(std::begin(kNodeOptions), std::end(kNodeOptions)));
  std::set<std::string> options;
  for (const char* command : kTerraceCommands) options.merge(names_in_help(program("terrace"), command));
  EXPECT_EQ(options, std::set<std::string>(std::begin(kTerraceOptions), std::end(kTerraceOptions)));

  const std::string help = run_terrace({"--help"}).out;
  std::set<std::string> commands;
  std::size_t at = help.find("Commands:\n") + 10;
  for (; help[at] == ' '; at = help.find('\n', at) + 1)
    commands.insert(help.substr(at + 2, help.find(' ', at + 2) - at - 2));
  EXPECT_EQ(commands, std::set<std::string>(std::begin(kTerraceCommands), std::end(kTerraceCommands)));
}

// Every line of every help fits a terminal of 100 columns but for the last paragraph's.
TEST(Help, FitsATerminal_AndEndsWithANewline) {
  for (const char* command : kTerraceCommands) {
    const std::string help = run_terrace({command, "--help"}).out;
    EXPECT_EQ(help, run_terrace({"help", command}).out);
    EXPECT_TRUE(help.starts_with("terrace " + std::string(command) + ": ")) << help;
    EXPECT_TRUE(help.ends_with(".\n"));
    for (std::size_t begin = 0, end; (end = help.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(end - begin, 120u) << help.substr(begin, end - begin);
  }
}

}  // namespace cli_config_test
}  // namespace terrace::test
