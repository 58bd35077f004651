// A subcommand of `terrace`: one file, and one line in commands.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/base/environment.h"
#include "common/base/options.h"
#include "common/base/result.h"

namespace terrace::app {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr const char* kStdoutFailed = "the result could not be written to stdout";

struct CommandContext {
  std::vector<std::string> arguments;  // behind the subcommand's name
  Environment environment;
  // Not null: nothing is run; parse_options() fills it with what the command's options are.
  ProgramHelp* describe = nullptr;
};

struct Command {
  const char* name;
  const char* summary;
  // Runs the command; prints its result on stdout. The error is printed by main() and becomes the exit code.
  Status (*run)(const CommandContext& context);
  // Names of its options, so that one configuration file serves all subcommands.
  std::vector<std::string> (*option_names)();
};

std::span<const Command> all_commands();

// One line of JSON on stdout. Text that is not UTF-8 (a file name) is shown with replacement characters.
void print_json_line(const nlohmann::ordered_json& json);

// Parses the command's arguments; true: the user asked for --help or the like, it was printed, and nothing more is to
// be done. Knows the options of all other commands and of terrace-node as siblings. `quiet`: what --quiet fills, if the
// command has it.
Result<bool> parse_options(OptionTable& table, const CommandContext& context, const bool* quiet = nullptr);

// The subcommands. Each is declared in its own file.
Status run_generate(const CommandContext& context);
Status run_chat(const CommandContext& context);
Status run_serve(const CommandContext& context);
Status run_score(const CommandContext& context);
Status run_bench(const CommandContext& context);
Status run_plan(const CommandContext& context);
Status run_tokenize(const CommandContext& context);
Status run_detokenize(const CommandContext& context);
Status run_template(const CommandContext& context);
Status run_inspect(const CommandContext& context);
Status run_secret(const CommandContext& context);
Status run_status(const CommandContext& context);
Status run_selftest(const CommandContext& context);
std::vector<std::string> generate_option_names();
std::vector<std::string> chat_option_names();
std::vector<std::string> serve_option_names();
std::vector<std::string> score_option_names();
std::vector<std::string> bench_option_names();
std::vector<std::string> plan_option_names();
std::vector<std::string> tokenize_option_names();
std::vector<std::string> detokenize_option_names();
std::vector<std::string> template_option_names();
std::vector<std::string> inspect_option_names();
std::vector<std::string> secret_option_names();
std::vector<std::string> status_option_names();
std::vector<std::string> selftest_option_names();

// kInvalidArgument is the user's: usage. Everything else is a failure.
int exit_code(const Error& error);

}  // namespace terrace::app
