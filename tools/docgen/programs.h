// Both programs as their option tables describe them.
#pragma once

#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/base/result.h"

namespace terrace::docgen {

struct CommandHelp {
  std::string name;     // "generate"
  std::string summary;  // of the list of commands
  ProgramHelp help;
};

struct Programs {
  std::vector<CommandHelp> terrace;  // its subcommands, in the order of `terrace --help`
  ProgramHelp node;
};

Result<Programs> describe_programs();

}  // namespace terrace::docgen
