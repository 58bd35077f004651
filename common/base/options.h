// The one table from which a program's flags, environment variables, TOML keys, --help and --print-config come.
//
//   GenerateOptions o;
//   OptionTable table("terrace generate", "Writes a continuation of a prompt.");
//   table.group("Sampling");
//   table.add("max-tokens", &o.max_tokens, "stop after so many tokens").short_name('n').range(1, 1 << 20);
//   table.add_choice("kv", &o.kv, {{"f16", Kv::kF16}, {"f32", Kv::kF32}}, "what keys and values are stored as");
//   table.add_positional("PROMPT", &o.prompt, "the text to continue; - reads it from stdin");
//   TERRACE_ASSIGN_OR_RETURN(ParseOutcome outcome, table.parse(arguments, environment));
//
// Option `max-tokens` is --max-tokens N, TERRACE_MAX_TOKENS=N and `max-tokens = N`. Where several give it, the flag
// wins over the environment, that over the configuration file, that over what the struct held. Of a flag that is
// given twice the last counts; a list adds up within one source and replaces the list of a weaker one. In the
// environment a list is separated by commas, and an empty variable counts as absent.
//
// Configuration file: --config FILE, else TERRACE_CONFIG, else terrace.toml in the working directory if it is there
// (the outcome's notes then say so). Keys at its top are for every program that knows them; a table [generate] is for
// `terrace generate` alone and wins over the top; [terrace-node] is for terrace-node. A key that no program knows is
// an error with a suggestion, so that a misspelt one is never silently without effect.
//
// Every table also has --config, --print-config, --help (-h) and --version.
// Threads: none; main() fills the structs before it starts any.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/environment.h"
#include "common/base/option_value.h"
#include "common/base/result.h"

namespace terrace {

// One row of the table. The setters return the row, so that a declaration is one statement.
class Option {
 public:
  Option(std::string name, OptionTarget target, std::string help, std::string group);

  Option& short_name(char letter);                   // -m
  Option& range(long double low, long double high);  // of a number, size (bytes) or time (ns); ends included
  Option& value_name(std::string name);              // "N" in "--max-tokens N"
  Option& default_text(std::string text);            // what --help says where no default is set: "the model's"
  Option& required();                                // parse() fails when no source gives a value

  const std::string& name() const { return name_; }
  std::string environment_name() const;  // "TERRACE_MAX_TOKENS"
  const OptionTarget& target() const { return target_; }

 private:
  friend class OptionTable;

  enum class Source { kDefault, kFile, kEnvironment, kFlag };

  std::string name_;
  OptionTarget target_;
  std::string help_;
  std::string group_;
  std::string value_name_;
  std::string default_text_;  // as shown by --help; from the target unless default_text() is called
  std::optional<OptionRange> range_;
  char short_name_ = '\0';
  bool required_ = false;
  bool in_file_ = true;         // has a TOML key
  bool in_environment_ = true;  // has a variable
  Source source_ = Source::kDefault;
};

// A table as its help, its man page and its shell completions show it: plain values.
struct OptionHelp {
  std::string name;  // without dashes; an argument's as help calls it
  char short_name = '\0';
  std::string value_name;            // empty: a flag without a value
  std::string text;                  // the help line with range, default and the like
  std::string group;                 // heading
  std::vector<std::string> choices;  // of an enumeration
  bool is_file = false;              // the value is a path
  bool repeatable = false;
  bool required = false;
};
struct ProgramHelp {
  std::string program;  // "terrace generate"
  std::string summary;
  std::vector<OptionHelp> arguments;  // positional
  std::vector<OptionHelp> options;    // group by group, as --help shows them
};

// The enumeration behind a plain or an optional target.
template <class T>
struct ChoiceValue {
  using type = T;
};
template <class T>
struct ChoiceValue<std::optional<T>> {
  using type = T;
};

struct ParseOutcome {
  // Present: the user asked for --help, --version or --print-config. Print it on stdout and exit with 0.
  std::optional<std::string> print;
  // For the log, once there is one: which configuration file was read, TERRACE_ variables that no option knows.
  std::vector<std::string> notes;
  // The configuration file that was read.
  std::optional<std::filesystem::path> config_file;
};

class OptionTable {
 public:
  // `program` as the user calls it: "terrace generate", "terrace-node". `summary`: one sentence.
  OptionTable(std::string program, std::string summary);
  ~OptionTable();
  OptionTable(OptionTable&&) noexcept;
  OptionTable& operator=(OptionTable&&) noexcept;

  // Options declared from here on stand below this heading in --help. Naming it again goes on with it.
  OptionTable& group(std::string heading);

  // name: long name without dashes, lower case with hyphens. The row's address stays until the table ends.
  Option& add(std::string name, OptionTarget target, std::string help);

  // An enumeration, or an optional of one, by the names of its values.
  template <class T>
  Option& add_choice(std::string name, T* target,
                     std::initializer_list<std::pair<std::string_view, typename ChoiceValue<T>::type>> choices,
                     std::string help);
  // For choices whose names are made elsewhere.
  Option& add_choice(std::string name, ChoiceTarget target, std::string help);

  // An argument without a flag, in the order of declaration; a repeatable one takes the rest and is the last.
  // No environment variable and no TOML key. name: "FILE", as help and errors call it.
  Option& add_positional(std::string name, OptionTarget target, std::string help);

  // Another program that reads the same configuration file: its keys, its table and its variables are known, and
  // skipped here. `section` is its table: "generate", "terrace-node".
  void add_sibling(std::string section, std::vector<std::string> option_names);
  void add_sibling(const OptionTable& other) { add_sibling(other.section(), other.option_names()); }

  const std::string& program() const { return program_; }
  std::string section() const;                    // "generate", "terrace-node"
  std::vector<std::string> option_names() const;  // without the positional ones

  // Fills the structs. `arguments` without the program's and the subcommand's name.
  // `working_dir` is where terrace.toml is looked for.
  // kInvalidArgument (exit code 2): an unknown flag, key, or value out of its range, one sentence that names it;
  // kNotFound, kIo: the file of --config. The structs may be half filled then.
  Result<ParseOutcome> parse(std::span<const std::string> arguments, const Environment& environment,
                             const std::filesystem::path& working_dir = ".");

  ProgramHelp describe() const;
  std::string help() const;
  // Every option with the value in force, as a TOML file whose comments say where each comes from.
  std::string print_config() const;

 private:
  struct Sibling {
    std::string section;
    std::vector<std::string> names;
  };
  struct CommandLine;  // what the arguments gave, before any conversion

  Option& add_builtin(std::string name, OptionTarget target, std::string help);
  static std::vector<std::string> details_of(const Option& option);  // what help says behind the text
  Option* find(std::string_view name) const;
  bool known_elsewhere(std::string_view name) const;
  std::vector<std::string> known_names() const;  // of this table and of the siblings
  std::vector<std::string> split_empty_values(std::span<const std::string> arguments) const;
  Result<CommandLine> read_command_line(std::span<const std::string> arguments) const;
  std::optional<std::filesystem::path> choose_file(const CommandLine& line, const Environment& environment,
                                                   const std::filesystem::path& working_dir) const;
  Status apply_file(const std::filesystem::path& file);
  Status apply_environment(const Environment& environment);
  Status apply_command_line(const CommandLine& line);
  Status check_required() const;
  void note_unknown_variables(const Environment& environment, std::vector<std::string>& notes) const;

  std::string program_;
  std::string summary_;
  std::string group_ = "Options";
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Option>> positionals_;
  std::vector<Sibling> siblings_;
  struct Builtin;  // what --config and its like fill
  std::unique_ptr<Builtin> builtin_;
};

template <class T>
Option& OptionTable::add_choice(
    std::string name, T* target,
    std::initializer_list<std::pair<std::string_view, typename ChoiceValue<T>::type>> choices, std::string help) {
  ChoiceTarget choice;
  std::vector<typename ChoiceValue<T>::type> values;
  for (const auto& [label, value] : choices) {
    choice.names.emplace_back(label);
    values.push_back(value);
  }
  choice.set = [target, values](std::size_t i) { *target = values[i]; };
  choice.selected = [target, values]() -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (*target == values[i]) return i;
    return std::nullopt;
  };
  return add_choice(std::move(name), std::move(choice), std::move(help));
}

}  // namespace terrace
