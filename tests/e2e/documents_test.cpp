// Man pages and shell completions, as the build makes them: they say all that --help says, and the shells take them.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/program_options.h"
#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace documents_test {

std::filesystem::path docs_dir() { return binary_dir().parent_path() / "docs"; }
std::string docs(const std::string& name) { return (docs_dir() / name).string(); }

// Where a tool lies, or nothing.
std::string find_tool(const std::string& name) {
  for (const char* dir : {"/usr/bin/", "/bin/", "/usr/local/bin/"})
    if (std::filesystem::exists(dir + name)) return dir + name;
  return "";
}

const char* kEvery[] = {"config", "print-config", "help", "version"};

std::set<std::string> all_flags(const std::string& program_name, const std::string& command = "") {
  std::set<std::string> names = names_in_help(program(program_name), command);
  names.insert(std::begin(kEvery), std::end(kEvery));
  return names;
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.insert(text.substr(begin, end - begin));
  return lines;
}

// What bash offers for the words, of which the last is being typed.
std::set<std::string> offered(const std::string& script, const std::string& function, const Arguments& words) {
  Arguments all = {find_tool("bash"),
                   "-c",
                   "set -u; . \"$1\"; function=$2; shift 2; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); "
                   "\"$function\"; printf '%s\\n' ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}",
                   "bash",
                   docs(script),
                   function};
  all.insert(all.end(), words.begin(), words.end());
  const Outcome run = run_program(all);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  std::set<std::string> lines = lines_of(run.out);
  lines.erase("");
  return lines;
}

std::set<std::string> long_flags(const std::set<std::string>& words) {
  std::set<std::string> names;
  for (const std::string& word : words)
    if (word.starts_with("--")) names.insert(word.substr(2));
  return names;
}

TEST(ManPage, EveryFlagOfHelp_StandsInIt) {
  std::string page = read_file(docs("terrace.1"));
  for (const char* command : kTerraceCommands) {
    EXPECT_NE(page.find(".SS terrace " + std::string(command) + "\n"), std::string::npos) << command;
    for (std::string flag : all_flags("terrace", command)) {
      for (std::size_t at = 0; (at = flag.find('-', at)) != std::string::npos; at += 2) flag.insert(at, "\\");
      EXPECT_NE(page.find("\\fB\\-\\-" + flag + "\\fR"), std::string::npos) << command << " " << flag;
    }
  }
  page = read_file(docs("terrace-node.1"));
  for (std::string flag : all_flags("terrace-node")) {
    for (std::size_t at = 0; (at = flag.find('-', at)) != std::string::npos; at += 2) flag.insert(at, "\\");
    EXPECT_NE(page.find("\\fB\\-\\-" + flag + "\\fR"), std::string::npos) << flag;
  }
}

TEST(ManPage, Groff_HasNothingToWarnOf) {
  const std::string groff = find_tool("groff");
  if (groff.empty()) GTEST_SKIP() << "groff is not installed";
  for (const char* page : {"terrace.1", "terrace-node.1"}) {
    const Outcome run = run_program({groff, "-man", "-ww", "-Tascii", "-P-cbou", docs(page)});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.err, "") << page;
    EXPECT_NE(run.out.find("NAME"), std::string::npos);
    EXPECT_NE(run.out.find("SEE ALSO"), std::string::npos);
  }
}

TEST(ManPage, Mandoc_HasNothingToWarnOf) {
  const std::string mandoc = find_tool("mandoc");
  if (mandoc.empty()) GTEST_SKIP() << "mandoc is not installed";
  for (const char* page : {"terrace.1", "terrace-node.1"}) {
    const Outcome run = run_program({mandoc, "-Tlint", "-Wwarning", docs(page)});
    // Without a date: the same tables give the same bytes.
    std::set<std::string> told = lines_of(run.out);
    std::erase_if(told, [](const std::string& line) { return line.ends_with("missing date, using \"\": TH"); });
    EXPECT_EQ(told, std::set<std::string>()) << page;
  }
}

TEST(Completions, Bash_OffersEveryCommandFlagAndValue) {
  ASSERT_NE(find_tool("bash"), "");
  std::set<std::string> commands(std::begin(kTerraceCommands), std::end(kTerraceCommands));
  std::set<std::string> first = commands;
  first.insert({"help", "--help", "--version"});
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", ""}), first);
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "help", ""}), commands);
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "gen"}), std::set<std::string>{"generate"});
  for (const char* command : kTerraceCommands)
    EXPECT_EQ(long_flags(offered("bash/terrace", "_terrace", {"terrace", command, "-"})), all_flags("terrace", command))
        << command;
  EXPECT_EQ(long_flags(offered("bash/terrace-node", "_terrace_node", {"terrace-node", "--"})),
            all_flags("terrace-node"));
  const std::set<std::string> kv = {"f16", "f32"};
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "generate", "--kv", ""}), kv);
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "generate", "--kv", "="}), kv);
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "generate", "--kv", "=", "f1"}),
            std::set<std::string>{"f16"});
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "generate", "--prompt", "-"}), std::set<std::string>())
      << "a text is whatever it is";
  const TempDir dir;
  write_file(dir / "a model.gguf", "");
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "chat", "-m", (dir / "a").string()}),
            std::set<std::string>{(dir / "a model.gguf").string()});
  EXPECT_EQ(offered("bash/terrace", "_terrace", {"terrace", "inspect", (dir / "a").string()}),
            std::set<std::string>{(dir / "a model.gguf").string()});
}

TEST(Completions, Bash_ReadsThemWithoutAComplaint) {
  for (const char* script : {"bash/terrace", "bash/terrace-node"}) {
    const Outcome run = run_program({find_tool("bash"), "-n", docs(script)});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.err, "");
  }
}

class ShellReads : public ::testing::TestWithParam<const char*> {};

TEST_P(ShellReads, ThemWithoutAComplaint) {
  const std::string shell = GetParam(), tool = find_tool(shell);
  if (tool.empty()) GTEST_SKIP() << shell << " is not installed";
  const std::string dir = shell + "/";
  const Arguments scripts =
      shell == "zsh" ? Arguments{"_terrace", "_terrace-node"} : Arguments{"terrace.fish", "terrace-node.fish"};
  for (const std::string& script : scripts) {
    const Outcome run = run_program({tool, "-n", docs(dir + script)});
    EXPECT_EQ(run.exit_code, 0) << script;
    EXPECT_EQ(run.err, "") << script;
  }
}

INSTANTIATE_TEST_SUITE_P(Completions, ShellReads, ::testing::Values("zsh", "fish"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Completions, Fish_OffersFlagsAndValues) {
  const std::string fish = find_tool("fish");
  if (fish.empty()) GTEST_SKIP() << "fish is not installed";
  const auto offers = [&](const std::string& line) {
    const Outcome run = run_program(
        {fish, "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", docs("fish/terrace.fish"), line});
    EXPECT_EQ(run.err, "");
    std::set<std::string> words;
    for (const std::string& offer : lines_of(run.out)) words.insert(offer.substr(0, offer.find('\t')));
    return words;
  };
  for (const char* command : kTerraceCommands)
    EXPECT_EQ(long_flags(offers("terrace " + std::string(command) + " --")), all_flags("terrace", command)) << command;
  EXPECT_EQ(offers("terrace generate --kv "), std::set<std::string>({"f16", "f32"}));
}

// The texts alone, where the shells are not there to ask.
TEST(Completions, ZshAndFish_NameEveryFlag) {
  const std::string zsh = read_file(docs("zsh/_terrace")), fish = read_file(docs("fish/terrace.fish"));
  for (const char* command : kTerraceCommands) {
    const std::string name = command;
    const std::size_t begin = zsh.find("    " + name + ")\n"), end = zsh.find(";;\n", begin);
    ASSERT_NE(begin, std::string::npos) << command;
    for (const std::string& flag : all_flags("terrace", command)) {
      const std::size_t at = zsh.find("--" + flag, begin);
      EXPECT_LT(at, end) << command << " " << flag;
      EXPECT_NE(fish.find("complete -c terrace -n '__fish_seen_subcommand_from " + name + "' -l " + flag + " "),
                std::string::npos)
          << command << " " << flag;
    }
  }
  for (const std::string& flag : all_flags("terrace-node")) {
    EXPECT_NE(read_file(docs("zsh/_terrace-node")).find("--" + flag), std::string::npos) << flag;
    EXPECT_NE(read_file(docs("fish/terrace-node.fish")).find("complete -c terrace-node -l " + flag + " "),
              std::string::npos)
        << flag;
  }
}

// The rules of CMake: everything lies where shells and man look for it, and the installed program finds its demo model.
TEST(Install, StandardPlaces) {
  const std::string cmake = find_tool("cmake");
  ASSERT_NE(cmake, "");
  const TempDir dir;
  const Outcome run =
      run_program({cmake, "--install", binary_dir().parent_path().string(), "--prefix", dir.path().string()});
  ASSERT_EQ(run.exit_code, 0) << run.err << run.out;
  for (const char* file :
       {"bin/terrace", "bin/terrace-node", "share/man/man1/terrace.1", "share/man/man1/terrace-node.1",
        "share/bash-completion/completions/terrace", "share/bash-completion/completions/terrace-node",
        "share/zsh/site-functions/_terrace", "share/zsh/site-functions/_terrace-node",
        "share/fish/vendor_completions.d/terrace.fish", "share/fish/vendor_completions.d/terrace-node.fish"})
    EXPECT_TRUE(std::filesystem::exists(dir.path() / file)) << file;
  const Outcome told = run_program({(dir.path() / "bin" / "terrace").string(), "tokenize", "x"});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_NE(told.err.find((dir.path() / "share" / "terrace").string()), std::string::npos) << told.err;
}

}  // namespace documents_test
}  // namespace terrace::test
