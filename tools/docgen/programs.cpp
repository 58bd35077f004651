#include "tools/docgen/programs.h"

#include "coordinator/app/command.h"
#include "tier_node/app/options.h"

namespace terrace::docgen {

Result<Programs> describe_programs() {
  Programs programs;
  for (const app::Command& command : app::all_commands()) {
    CommandHelp described{command.name, command.summary, {}};
    TERRACE_RETURN_IF_ERROR(command.run({{}, Environment(), &described.help}));
    if (described.help.program.empty())
      return Error(ErrorCode::kInternal, std::string(command.name) + ": does not describe its options");
    programs.terrace.push_back(std::move(described));
  }
  node::NodeOptions options;
  programs.node = node::make_option_table(&options).describe();
  return programs;
}

}  // namespace terrace::docgen
