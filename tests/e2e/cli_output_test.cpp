// Results that cannot be written: a full disk, a reader that has gone. One line on stderr and exit code 1; what was
// begun under a name is gone again. Notes and caches that cannot be written end nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace::test {
namespace cli_output_test {

constexpr int kFailure = 1, kNoMount = 99;
constexpr const char* kStdoutFailed = "terrace: the result could not be written to stdout\n";

struct Case {
  const char* name;
  Arguments arguments;
  bool slow = false;  // measures or checks for a second
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Every way of a command to write a result.
std::vector<Case> all_results() {
  const std::string demo = demo_model().string();
  const std::string text = (source_dir() / "LICENSE").string();
  return {
      {"Help", {"--help"}},
      {"Version", {"--version"}},
      {"CommandHelp", {"score", "--help"}},
      {"PrintConfig", {"bench", "--print-config"}},
      {"Generate", {"generate", "--quiet", "-p", "x", "-n", "2"}},
      {"GenerateStream", {"generate", "--quiet", "-p", "x", "-n", "2", "--stream"}},
      {"GenerateJson", {"generate", "--quiet", "-p", "x", "-n", "2", "--json"}},
      {"Score", {"score", "--quiet", "--text", text, "--chunk", "64"}},
      {"ScoreJson", {"score", "--quiet", "--text", text, "--chunk", "64", "--json"}},
      {"Bench", {"bench", "--quiet", "-p", "4", "-n", "0", "-r", "1"}},
      {"BenchJson", {"bench", "--quiet", "-p", "4", "-n", "0", "-r", "1", "--json"}},
      {"BenchLimits", {"bench", "--quiet", "-p", "0", "-n", "0", "--limits", "--limits-buffer", "4M"}, true},
      {"Tokenize", {"tokenize", "--quiet", "x"}},
      {"Detokenize", {"detokenize", "--quiet", "[9]"}},
      {"Inspect", {"inspect", demo}},
      {"InspectJson", {"inspect", demo, "--json"}},
      {"InspectManifest", {"inspect", demo, "--manifest"}},
      {"Selftest", {"selftest"}, true},
      {"SelftestJson", {"selftest", "--json"}, true},
  };
}

std::vector<Case> quick_results() {
  std::vector<Case> cases = all_results();
  std::erase_if(cases, [](const Case& each) { return each.slow; });
  return cases;
}

Arguments terrace_command(const Arguments& arguments) {
  Arguments all = {program("terrace")};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

// The writing end of a pipe that nobody reads, for a shell line: ">&4".
class PipeWithoutReader {
 public:
  PipeWithoutReader() {
    int fds[2];
    if (::pipe(fds) != 0) throw std::runtime_error("pipe");
    ::close(fds[0]);
    fd_ = fds[1];
    if (fd_ > 9) throw std::runtime_error("a shell takes descriptors of one digit");
  }
  ~PipeWithoutReader() { ::close(fd_); }
  PipeWithoutReader(const PipeWithoutReader&) = delete;
  PipeWithoutReader& operator=(const PipeWithoutReader&) = delete;
  std::string number() const { return std::to_string(fd_); }

 private:
  int fd_ = -1;
};

class ResultNobodyTakes : public ::testing::TestWithParam<Case> {};

TEST_P(ResultNobodyTakes, FullDevice) {
  const Outcome run = run_shell("exec \"$@\" >/dev/full", terrace_command(GetParam().arguments));
  EXPECT_EQ(run.exit_code, kFailure) << "signal " << run.signal;
  EXPECT_EQ(run.err, kStdoutFailed);
}

// What takes a second computes for one kind of loss alone: all commands write through the same few functions, and each
// has shown above that it asks them.
class QuickResultNobodyTakes : public ::testing::TestWithParam<Case> {};

// Not by SIGPIPE and without a word: who pipes a result has to know that it is not whole.
TEST_P(QuickResultNobodyTakes, PipeWhoseReaderHasGone) {
  const PipeWithoutReader pipe;
  const Outcome run = run_shell("exec \"$@\" >&" + pipe.number(), terrace_command(GetParam().arguments));
  EXPECT_EQ(run.signal, 0);
  EXPECT_EQ(run.exit_code, kFailure);
  EXPECT_EQ(run.err, kStdoutFailed);
}

TEST_P(QuickResultNobodyTakes, ClosedStdout) {
  const Outcome run = run_shell("exec \"$@\" >&-", terrace_command(GetParam().arguments));
  EXPECT_EQ(run.exit_code, kFailure) << "signal " << run.signal;
  EXPECT_EQ(run.err, kStdoutFailed);
}

INSTANTIATE_TEST_SUITE_P(Commands, ResultNobodyTakes, ::testing::ValuesIn(all_results()),
                         [](const auto& tested) { return std::string(tested.param.name); });
INSTANTIATE_TEST_SUITE_P(Commands, QuickResultNobodyTakes, ::testing::ValuesIn(quick_results()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(ResultNobodyTakesOfANode, Status) {
  NodeProcess node;
  const PipeWithoutReader pipe;
  for (const std::string& to : {std::string(">/dev/full"), std::string(">&-"), ">&" + pipe.number()})
    for (const Arguments& form : {Arguments{}, Arguments{"--json"}}) {
      Arguments all = terrace_command({"status", "--node", node.address()});
      all.insert(all.end(), form.begin(), form.end());
      const Outcome run = run_shell("exec \"$@\" " + to, all);
      EXPECT_EQ(run.exit_code, kFailure) << to << ", signal " << run.signal;
      EXPECT_EQ(run.err, kStdoutFailed) << to;
    }
  node.stop();
}

TEST(ResultNobodyTakesOfANode, HelpAndConfig) {
  const PipeWithoutReader pipe;
  for (const char* const flag : {"--help", "--version", "--print-config"})
    for (const std::string& to : {std::string(">/dev/full"), std::string(">&-"), ">&" + pipe.number()}) {
      const Outcome run = run_shell("exec \"$@\" " + to, {program("terrace-node"), flag});
      EXPECT_EQ(run.exit_code, kFailure) << flag << to << ", signal " << run.signal;
      EXPECT_EQ(run.err, "terrace-node: the text could not be written to stdout\n");
    }
}

// A node's stderr that nobody reads any more: it serves on.
TEST(ResultNobodyTakesOfANode, LogIntoAPipeWithoutReader_NodeServesOn) {
  const TempDir dir;
  const PipeWithoutReader pipe;
  Process node({"/bin/sh", "-c", "exec \"$@\" 2>&" + pipe.number(), "sh", program("terrace-node"), "--listen",
                "127.0.0.1:0", "--threads", "1", "--ram", "64M"});
  // It cannot say its port; that it runs on is all that can be seen, through the descriptors of its two listeners.
  const auto n_listening = [&] {
    std::size_t n = 0;
    std::error_code ignored;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(node.pid()) + "/fd", ignored))
      n += std::filesystem::read_symlink(fd.path(), ignored).string().starts_with("socket:") ? 1 : 0;
    return n;
  };
  EXPECT_TRUE(eventually([&] { return n_listening() >= 2; }));
  EXPECT_TRUE(node.running());
  node.kill(SIGTERM);
  EXPECT_EQ(node.wait().exit_code, 0);
}

// ---- a disk of 64 KiB, in a mount namespace of its own

class FullDisk : public ::testing::Test {
 protected:
  // A command that runs the shell line with "$d" being the disk and "$@" the program. exec all along: one process.
  Arguments on_disk(const std::string& line, const Arguments& program_and_arguments) const {
    Arguments words = {
        "/bin/sh", "-c",
        "exec unshare --user --map-root-user --mount sh -c 'd=$1; shift; mount -t tmpfs -o size=64k none "
        "\"$d\" || exit 99; " +
            line + "' sh \"$@\"",
        "sh", dir_.path().string()};
    words.insert(words.end(), program_and_arguments.begin(), program_and_arguments.end());
    return words;
  }
  static bool no_disk(const Outcome& run) {
    return run.exit_code == kNoMount || run.exit_code == 127 || run.err.find("unshare: ") != std::string::npos;
  }
  const TempDir dir_;
};

constexpr const char* kNoDisk = "this user may not mount a file system of its own here";
#define TERRACE_RUN_ON_DISK(run, line, ...)                    \
  const Outcome run = run_program(on_disk(line, __VA_ARGS__)); \
  if (no_disk(run)) GTEST_SKIP() << kNoDisk

TEST_F(FullDisk, RandomModel_SaysWhyAndLeavesNothing) {
  TERRACE_RUN_ON_DISK(run, R"("$@" --out "$d/x.gguf"; code=$?; ls -A "$d"; exit $code)",
                      {program("terrace-random-model"), "--layers", "1"});
  EXPECT_EQ(run.exit_code, kFailure);
  EXPECT_EQ(run.out, "") << "a file is left";
  EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  EXPECT_THAT(run.err,
              ::testing::MatchesRegex("terrace-random-model: .*x.gguf.partial[.]......: cannot write it after [0-9]+ "
                                      "bytes: No space left on device\n"));
}

TEST_F(FullDisk, RedirectedResults_AreFailuresThatSaySo) {
  for (const Case& each : quick_results()) {
    SCOPED_TRACE(each.name);
    TERRACE_RUN_ON_DISK(run, R"(head -c 1M /dev/zero > "$d/fill" 2>/dev/null; exec "$@" > "$d/out")",
                        terrace_command(each.arguments));
    EXPECT_EQ(run.exit_code, kFailure) << "signal " << run.signal;
    EXPECT_EQ(run.err, kStdoutFailed);
  }
}

constexpr const char* kCacheOnDisk = R"(head -c 1M /dev/zero > "$d/fill" 2>/dev/null; XDG_CACHE_HOME=$d exec "$@")";

TEST_F(FullDisk, ManifestCache_IsANoteAndTheResultIsThere) {
  TERRACE_RUN_ON_DISK(run, kCacheOnDisk, terrace_command({"inspect", "--manifest", demo_model().string()}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ::testing::HasSubstr("manifest     "));
  EXPECT_THAT(run.err,
              ::testing::MatchesRegex("terrace: .*: cached manifest not written: .*No space left on device\n"));
}

TEST_F(FullDisk, ManifestCacheOfARunWithANode_IsANoteAndTheTextIsThere) {
  NodeProcess node;
  const Arguments short_text = {"generate", "-p", "x", "-n", "2"};
  Arguments with_node = short_text;
  with_node.insert(with_node.end(), {"--node", node.address()});
  TERRACE_RUN_ON_DISK(run, kCacheOnDisk, terrace_command(with_node));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, run_terrace(short_text).out);
  EXPECT_THAT(run.err, ::testing::HasSubstr("cached manifest not written"));
  node.stop();
}

TEST_F(FullDisk, ManifestCacheOfANode_IsAWarningAndItServes) {
  Process node(
      on_disk(kCacheOnDisk, {program("terrace-node"), "--listen", "127.0.0.1:0", "--model", demo_model().string()}));
  const auto listens = [&] { return node.err().find("listening on ") != std::string::npos; };
  ASSERT_TRUE(eventually([&] { return listens() || !node.running(); }));
  if (listens()) node.kill(SIGTERM);
  const Outcome run = node.wait();
  if (no_disk(run)) GTEST_SKIP() << kNoDisk;
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("cached manifest not written"));
}

}  // namespace cli_output_test
}  // namespace terrace::test
