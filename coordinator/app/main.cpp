// terrace: the coordinator's program. `terrace SUBCOMMAND ...`; see commands.cpp.
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/console.h"
#include "common/base/suggestion.h"
#include "common/base/version.h"
#include "common/gguf/mapping_fault.h"
#include "common/transport/link/link.h"
#include "coordinator/app/command.h"

namespace terrace::app {
namespace {

void print_help() {
  print_out(
      "terrace runs one large mixture-of-experts model over the machines you have.\n\n"
      "usage: terrace COMMAND [options]\n\nCommands:\n");
  for (const Command& command : all_commands()) print_out("  {:<12} {}\n", command.name, command.summary);
  print_out(
      "\nterrace COMMAND --help shows a command's options. Without --model the demo model is used:\n"
      "  terrace generate --prompt \"Once upon a time\"\n");
}

Result<const Command*> find(std::string_view name) {
  std::vector<std::string> known;
  for (const Command& command : all_commands()) {
    if (name == command.name) return &command;
    known.emplace_back(command.name);
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("there is no command \"{}\"{} (see `terrace --help`)", name, suggestion(name, known)));
}

Status run_command(const std::string& name, std::vector<std::string> arguments) {
  TERRACE_ASSIGN_OR_RETURN(const Command* command, find(name));
  return command->run({std::move(arguments), Environment::of_process()});
}

Status run(std::vector<std::string> arguments) {
  const std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--version") {
    print_out("terrace {}\n", version());
    return {};
  }
  const bool help = name == "--help" || name == "-h" || name == "help";
  if (help && !arguments.empty()) return run_command(arguments.front(), {"--help"});
  if (!help) return run_command(name, std::move(arguments));
  print_help();
  return {};
}

int finish(const Status& status) {
  // What was printed may still be in a buffer; a full disk or a closed pipe shows only now.
  const bool written = stdout_is_written();
  if (!status.ok()) {
    print_err("terrace: {}\n", status.error().text());
    return exit_code(status.error());
  }
  if (!written) print_err("terrace: {}\n", kStdoutFailed);
  return written ? kExitOk : kExitFailure;
}

}  // namespace
}  // namespace terrace::app

int main(int argc, char** argv) {
  terrace::transport::return_signals();
  terrace::prepare_standard_streams();
  terrace::gguf::explain_mapping_faults();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    terrace::app::print_help();
    return terrace::app::kExitUsage;
  }
  try {
    return terrace::app::finish(terrace::app::run(std::move(arguments)));
  } catch (const std::exception& error) {  // out of memory, or a library's own bug
    terrace::print_err("terrace: {}\n", error.what());
    return terrace::app::kExitFailure;
  }
}
