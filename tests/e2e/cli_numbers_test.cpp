// Every number that the programs take, by flag, by variable and in terrace.toml: -1, NaN, 2^63 and their like are one
// line that names option and value, and exit code 2. Which options there are is read from --help, so that a new one is
// in this test from its first day.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <sstream>

#include "common/base/program_options.h"
#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace {

constexpr int kUsage = 2;
constexpr const char* kTwoTo63 = "9223372036854775808";
const char* const kBad[] = {"-1",   "nan", kTwoTo63, "-9223372036854775808", "18446744073709551616", "inf", "1e400",
                            "0x10", "1 ",  "one"};

struct Number {
  std::string option;
  std::string placeholder;  // "N"
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// The options that take numbers. A placeholder that is not known here fails the test: say whether it is a number.
std::vector<Number> numbers_of(const Arguments& command) {
  const std::set<std::string> numbers = {"N", "X", "SIZE", "TIME", "PORT", "N,...", "FRACTION", "HOST:PORT"};
  const std::set<std::string> texts = {"TEXT", "FILE", "DIR", "SPEC|FILE", "LIST", "DATE", "ORIGIN"};
  Arguments help = command;
  help.push_back("--help");
  const Outcome shown = run_program(help);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  std::istringstream lines(shown.out);
  std::vector<Number> found;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    const std::size_t at = line.find("--");
    if (at != 6 || words.empty()) continue;  // "  -p, --prompt TEXT" and "      --stop TEXT"
    const std::vector<std::string> row = words_of(line.substr(at));
    const bool takes_value = row.size() > 1 && line.substr(at + row[0].size(), 2) != "  ";
    if (!takes_value) continue;
    const std::string& placeholder = row[1];
    if (numbers.contains(placeholder))
      found.push_back({row[0].substr(2), placeholder});
    else
      EXPECT_TRUE(texts.contains(placeholder) || placeholder.find('|') != std::string::npos) << line;
  }
  return found;
}

// What is wrong for most numbers and right for these.
bool is_allowed(const std::string& option, const std::string& value) {
  if (option == "seed") return value == kTwoTo63;
  if (option == "repeat-last-n") return value == "-1";  // all tokens
  return (option == "presence-penalty" || option == "frequency-penalty") && value == "-1";
}

class CliNumbers : public ::testing::TestWithParam<std::string> {
 protected:
  bool is_node() const { return GetParam() == kNodeProgram; }
  Arguments command() const {
    return is_node() ? Arguments{program(kNodeProgram)} : Arguments{program("terrace"), GetParam()};
  }
  std::string value(const Number& number, const std::string& bad) const {
    return number.placeholder == "HOST:PORT" ? "127.0.0.1:" + bad : bad;
  }

  // A run that ends soon even if the value were taken: its model is not there, and that is another exit code.
  Outcome run(const Arguments& variables, Arguments more) const {
    Arguments all = command();
    if (GetParam() != "status") more.insert(more.end(), {"--model", "nowhere.gguf"});
    all.insert(all.end(), more.begin(), more.end());
    return run_in(dir_.path(), variables, all);
  }
  static void expect_refused(const Outcome& run, const std::string& name, const std::string& value) {
    EXPECT_EQ(run.exit_code, kUsage) << run.err;
    EXPECT_EQ(run.out, "");
    // What is found where it is used comes behind the note of the file that was read.
    std::string told = run.err;
    if (told.find("options read from mine.toml\n") < told.find('\n')) told.erase(0, told.find('\n') + 1);
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << run.err;
    EXPECT_THAT(told, ::testing::AllOf(::testing::StartsWith("terrace"), ::testing::HasSubstr(name),
                                       ::testing::HasSubstr(value)));
  }
  void expect_allowed(const Arguments& variables, const Arguments& flags, const Number& number,
                      const std::string& value) const {
    Arguments all = flags;
    all.push_back("--print-config");
    const Outcome shown = run(variables, all);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, ::testing::HasSubstr(fmt::format("{} = {}", number.option, value)));
  }
  const TempDir dir_;
};

TEST_P(CliNumbers, ByFlag) {
  for (const Number& number : numbers_of(command()))
    for (const char* const bad : kBad) {
      const std::string flag = fmt::format("--{}={}", number.option, value(number, bad));
      SCOPED_TRACE(flag);
      if (is_allowed(number.option, bad))
        expect_allowed({}, {flag}, number, bad);
      else
        expect_refused(run({}, {flag}), number.placeholder == "HOST:PORT" ? "" : "--" + number.option, bad);
    }
}

TEST_P(CliNumbers, ByVariable) {
  for (const Number& number : numbers_of(command()))
    for (const char* const bad : kBad) {
      std::string name = "TERRACE_" + number.option;
      for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
      const std::string variable = name + "=" + value(number, bad);
      SCOPED_TRACE(variable);
      if (is_allowed(number.option, bad)) expect_allowed({variable}, {}, number, bad);
      // A list's variable and an address are looked at where they are used: named as the option is.
      else
        expect_refused(run({variable}, {}), number.placeholder.size() <= 4 ? name : "", bad);
    }
}

TEST_P(CliNumbers, ByConfigurationFile) {
  for (const Number& number : numbers_of(command()))
    for (const char* const bad : kBad) {
      const std::string line = fmt::format("{} = \"{}\"\n", number.option, value(number, bad));
      SCOPED_TRACE(line);
      write_file(dir_ / "mine.toml", line);
      const Arguments config = {"--config", "mine.toml"};
      if (is_allowed(number.option, bad))
        expect_allowed({}, config, number, bad);
      else
        expect_refused(run({}, config), number.placeholder.size() <= 4 ? "mine.toml:1: " + number.option : "", bad);
    }
}

// As TOML's own numbers, which know NaN and infinity and end at 2^63 - 1.
TEST_P(CliNumbers, ByConfigurationFile_AsTomlNumbers) {
  for (const Number& number : numbers_of(command())) {
    if (number.placeholder == "HOST:PORT") continue;
    for (const char* const bad : {"-1", "nan", "inf", "-9223372036854775808", kTwoTo63}) {
      const std::string line = fmt::format("{} = {}\n", number.option, bad);
      SCOPED_TRACE(line);
      write_file(dir_ / "mine.toml", line);
      if (std::string(bad) == "-1" && is_allowed(number.option, bad))
        expect_allowed({}, {"--config", "mine.toml"}, number, bad);
      else
        expect_refused(run({}, {"--config", "mine.toml"}), number.placeholder == "N,..." ? "" : "mine.toml:1: ", "");
    }
  }
}

std::vector<std::string> programs() {
  std::vector<std::string> all = {kNodeProgram};
  for (const char* command : kTerraceCommands)
    for (const char* has_numbers : {"generate", "chat", "serve", "score", "bench", "plan", "status"})
      if (std::string(command) == has_numbers) all.emplace_back(command);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Programs, CliNumbers, ::testing::ValuesIn(programs()), [](const auto& tested) {
  return tested.param == kNodeProgram ? std::string("node") : tested.param;
});

// The commands that are not in the list above have none, and those that are have some.
TEST(CliNumbersOfAll, EveryCommandWithNumbersIsTested) {
  const std::vector<std::string> tested = programs();
  EXPECT_FALSE(numbers_of({program(kNodeProgram)}).empty());
  for (const char* const command : kTerraceCommands)
    EXPECT_NE(numbers_of({program("terrace"), command}).empty(), std::ranges::count(tested, std::string(command)) != 0)
        << command;
}

TEST(CliNumbersOfShares, ExpertsThatAreNoNumbersOrTooLarge_AreRefused) {
  for (const char* const bad : {"-1", "nan", kTwoTo63, "0-9223372036854775808", "31-0", "0-", "-", ""}) {
    const std::string spec = std::string("host=") + bad;
    SCOPED_TRACE(spec);
    const Outcome run = run_terrace({"generate", "--quiet", "-p", "x", "--share", spec}, kUsage);
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_THAT(run.err, ::testing::HasSubstr("share"));
  }
}

// The tool has a table of its own; same rule.
TEST(CliNumbersOfRandomModel, AreRefusedAndNothingIsWritten) {
  const TempDir dir;
  const std::string out = (dir / "x.gguf").string();
  for (const char* const option :
       {"layers", "d-model", "heads", "kv-heads", "head-dim", "experts", "top-k", "ff", "vocab", "context", "seed"})
    for (const char* const bad : {"-1", "nan", kTwoTo63, "one", "1.5", "0"}) {
      const std::string flag = fmt::format("--{}={}", option, bad);
      SCOPED_TRACE(flag);
      if (std::string(option) == "seed" && (std::string(bad) == "0" || std::string(bad) == kTwoTo63)) continue;
      const Outcome run = run_program({program("terrace-random-model"), flag, "--out", out});
      EXPECT_EQ(run.exit_code, kUsage) << run.err;
      EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
      EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    }
}

}  // namespace
}  // namespace terrace::test
