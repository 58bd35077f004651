// Every number that the programs take, by flag, by variable and in terrace.toml: -1, NaN, 2^63 and their like are one
// line that names option and value, and exit code 2. Which options there are is read from --help, so that a new one is
// in this test from its first day.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>

#include "common/base/program_options.h"
#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/command_here.h"

namespace terrace::test {
namespace cli_numbers_test {

constexpr int kUsage = 2;
constexpr const char* kTwoTo63 = "9223372036854775808";
const char* const kBad[] = {"-1",   "nan", kTwoTo63, "-9223372036854775808", "18446744073709551616", "inf", "1e400",
                            "0x10", "1 ",  "one"};

// What an option takes, by its placeholder. One that is not known here fails the test: say which it is.
enum class Takes { kNumber, kNumbers, kAddress, kText };
const std::map<std::string, Takes> kPlaceholders = {
    {"N", Takes::kNumber},          {"X", Takes::kNumber},        {"SIZE", Takes::kNumber},
    {"TIME", Takes::kNumber},       {"PORT", Takes::kNumber},     {"FRACTION", Takes::kNumber},
    {"US", Takes::kNumber},         {"N,...", Takes::kNumbers},   {"SIZE,...", Takes::kNumbers},
    {"HOST:PORT", Takes::kAddress}, {"TEXT", Takes::kText},       {"FILE", Takes::kText},
    {"DIR", Takes::kText},          {"SPEC|FILE", Takes::kText},  {"LIST", Takes::kText},
    {"DATE", Takes::kText},         {"ORIGIN", Takes::kText},     {"NAME", Takes::kText},
    {"CIDR", Takes::kText},         {"FIRST-LAST", Takes::kText}, {"DEVICE", Takes::kText},
};

struct Number {
  std::string option;
  Takes takes;

  bool is_address() const { return takes == Takes::kAddress; }
  bool is_list() const { return takes == Takes::kNumbers; }
  // Errors name the variable, or the line of the file. Lists and addresses are looked at where they are used: there
  // errors name the option alone.
  bool is_named_by_source() const { return takes == Takes::kNumber; }
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// The options that take numbers.
std::vector<Number> numbers_of(const Arguments& command) {
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
    const auto known = kPlaceholders.find(placeholder);
    if (known == kPlaceholders.end())
      EXPECT_NE(placeholder.find('|'), std::string::npos) << line;  // a choice
    else if (known->second != Takes::kText)
      found.push_back({row[0].substr(2), known->second});
  }
  return found;
}

// What is wrong for most numbers and right for these.
bool is_allowed(const std::string& option, const std::string& value) {
  if (option == "seed") return value == kTwoTo63;
  if (option == "repeat-last-n") return value == "-1";  // all tokens
  return (option == "presence-penalty" || option == "frequency-penalty") && value == "-1";
}

using Variables = std::map<std::string, std::string>;

// Each value for each option goes through the command in this process, which is main() without its start; every option
// meets some of the values in a process of its own too, from each source. terrace-node has few options and is not
// linked here: processes alone, with more of the values.
class CliNumbers : public ::testing::TestWithParam<std::string> {
 protected:
  bool is_node() const { return GetParam() == kNodeProgram; }
  Arguments command() const {
    return is_node() ? Arguments{program(kNodeProgram)} : Arguments{program("terrace"), GetParam()};
  }
  static std::string value(const Number& number, const std::string& bad) {
    return number.is_address() ? "127.0.0.1:" + bad : bad;
  }
  // Whether the `option`-th option meets the `value`-th value in a process.
  bool in_process_of_its_own(std::size_t option, std::size_t value) const {
    return value % (is_node() ? 3 : std::size(kBad)) == option % (is_node() ? 3 : std::size(kBad));
  }

  // A run that ends soon even if the value were taken: its model is not there, and that is another exit code.
  Arguments with_no_model(Arguments arguments) const {
    if (GetParam() != "status") arguments.insert(arguments.end(), {"--model", "nowhere.gguf"});
    return arguments;
  }
  Outcome run(const Variables& variables, const Arguments& more) const {
    Arguments all = command();
    for (const std::string& argument : with_no_model(more)) all.push_back(argument);
    Arguments settings;
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    return run_in(dir_.path(), settings, all);
  }
  // The same in this process. Nothing is left of it: it ends before it opens anything.
  Outcome run_here(const Variables& variables, const Arguments& more) const {
    Arguments all = with_no_model(more);
    all.insert(all.begin(), GetParam());
    return run_command_here(all, Environment(variables));
  }

  static void expect_refused(const Outcome& run, const std::string& name, const std::string& value) {
    EXPECT_EQ(run.exit_code, kUsage) << run.err;
    EXPECT_EQ(run.out, "");
    // What is found where it is used comes behind the note of the file that was read.
    std::string told = run.err;
    const std::size_t note = told.find("mine.toml\n");
    if (note != std::string::npos && note < told.find('\n')) told.erase(0, told.find('\n') + 1);
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << run.err;
    EXPECT_THAT(told, ::testing::AllOf(::testing::StartsWith("terrace"), ::testing::HasSubstr(name),
                                       ::testing::HasSubstr(value)));
  }
  void expect_allowed(const Variables& variables, const Arguments& flags, const Number& number,
                      const std::string& value) const {
    Arguments all = flags;
    all.push_back("--print-config");
    const Outcome shown = run(variables, all);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, ::testing::HasSubstr(fmt::format("{} = {}", number.option, value)));
  }

  // Gives every option every value by `give`, which returns variables and flags; `name_of`: how errors call the option.
  template <class Give, class NameOf>
  void expect_each_refused(Give give, NameOf name_of) const {
    const std::vector<Number> numbers = numbers_of(command());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      for (std::size_t j = 0; j < std::size(kBad); ++j) {
        const Number& number = numbers[i];
        const std::string bad = kBad[j];
        SCOPED_TRACE(number.option + ": " + bad);
        const auto [variables, flags] = give(number, value(number, bad));
        if (is_allowed(number.option, bad)) {
          expect_allowed(variables, flags, number, bad);
          continue;
        }
        if (!is_node()) expect_refused(run_here(variables, flags), name_of(number), bad);
        if (in_process_of_its_own(i, j)) expect_refused(run(variables, flags), name_of(number), bad);
      }
  }
  std::string write_config(const std::string& line) const {
    write_file(dir_ / "mine.toml", line);
    return (dir_ / "mine.toml").string();
  }
  const TempDir dir_;
};

using Given = std::pair<Variables, Arguments>;

TEST_P(CliNumbers, ByFlag) {
  expect_each_refused(
      [](const Number& number, const std::string& value) {
        return Given{{}, {fmt::format("--{}={}", number.option, value)}};
      },
      [](const Number& number) { return number.is_address() ? "" : "--" + number.option; });
}

TEST_P(CliNumbers, ByVariable) {
  const auto variable = [](const Number& number) {
    std::string name = "TERRACE_" + number.option;
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    return name;
  };
  expect_each_refused(
      [&](const Number& number, const std::string& value) {
        return Given{{{variable(number), value}}, {}};
      },
      [&](const Number& number) { return number.is_named_by_source() ? variable(number) : ""; });
}

TEST_P(CliNumbers, ByConfigurationFile) {
  expect_each_refused(
      [&](const Number& number, const std::string& value) {
        return Given{{}, {"--config", write_config(fmt::format("{} = \"{}\"\n", number.option, value))}};
      },
      [](const Number& number) { return number.is_named_by_source() ? "mine.toml:1: " + number.option : ""; });
}

// As TOML's own numbers, which know NaN and infinity and end at 2^63 - 1.
TEST_P(CliNumbers, ByConfigurationFile_AsTomlNumbers) {
  const char* const bad_numbers[] = {"-1", "nan", "inf", "-9223372036854775808", kTwoTo63};
  const std::vector<Number> numbers = numbers_of(command());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Number& number = numbers[i];
    if (number.is_address()) continue;
    for (std::size_t j = 0; j < std::size(bad_numbers); ++j) {
      const std::string bad = bad_numbers[j], line = fmt::format("{} = {}\n", number.option, bad);
      SCOPED_TRACE(line);
      const Arguments flags = {"--config", write_config(line)};
      const std::string where = number.is_list() ? "" : "mine.toml:1: ";
      if (bad == "-1" && is_allowed(number.option, bad)) {
        expect_allowed({}, flags, number, bad);
        continue;
      }
      if (!is_node()) expect_refused(run_here({}, flags), where, "");
      if (is_node() || i % std::size(bad_numbers) == j) expect_refused(run({}, flags), where, "");
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

}  // namespace cli_numbers_test
}  // namespace terrace::test
