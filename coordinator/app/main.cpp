// terrace: the coordinator's program. `terrace SUBCOMMAND ...`; see commands.cpp.
#include <fmt/core.h>
#include <signal.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/suggestion.h"
#include "common/base/version.h"
#include "coordinator/app/command.h"

namespace {

using terrace::app::Command;

void print_help() {
  fmt::print(
      "terrace runs one large mixture-of-experts model over the machines you have.\n\n"
      "Usage: terrace COMMAND [OPTIONS]\n\nCommands:\n");
  for (const Command& command : terrace::app::all_commands())
    fmt::print("  {:<12} {}\n", command.name, command.summary);
  fmt::print(
      "\nterrace COMMAND --help shows a command's options. Without --model the demo model is used:\n"
      "  terrace generate --prompt \"Once upon a time\"\n");
}

const Command* find(std::string_view name) {
  for (const Command& command : terrace::app::all_commands())
    if (name == command.name) return &command;
  return nullptr;
}

int unknown(const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : terrace::app::all_commands()) known.emplace_back(command.name);
  fmt::print(stderr, "terrace: there is no command \"{}\"{}\nterrace --help lists the commands\n", name,
             terrace::suggestion(name, known));
  return terrace::app::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // A closed stdout or peer is an error of that write, not the end of the process.
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    print_help();
    return terrace::app::kExitUsage;
  }
  const std::string name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return terrace::app::kExitOk;
  }
  if (name == "--version") {
    fmt::print("terrace {}\n", terrace::version());
    return terrace::app::kExitOk;
  }
  const Command* command = find(name);
  if (command == nullptr) return unknown(name);
  arguments.erase(arguments.begin());
  const terrace::Status status = command->run({std::move(arguments), terrace::Environment::of_process()});
  if (!status.ok()) fmt::print(stderr, "terrace: {}\n", status.error().text());
  // What was printed may still be in a buffer; a full disk or a closed pipe shows only now.
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (status.ok() && !written) fmt::print(stderr, "terrace: the result could not be written to stdout\n");
  if (!status.ok()) return terrace::app::exit_code(status.error());
  return written ? terrace::app::kExitOk : terrace::app::kExitFailure;
}
