#include <fmt/format.h>

#include <algorithm>

#include "tools/docgen/completions.h"

namespace terrace::docgen {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// `where`: the program, and the condition under which the flag exists.
std::string line_of(const OptionHelp& option, const std::string& where) {
  std::string line = fmt::format("complete {} -l {}", where, option.name);
  if (option.short_name != '\0') line += fmt::format(" -s {}", option.short_name);
  if (!option.choices.empty())
    line += fmt::format(" -xa {}", in_quotes(fmt::format("{}", fmt::join(option.choices, " "))));
  else if (option.is_file)
    line += " -rF";
  else if (!option.value_name.empty())
    line += " -x";
  return line + fmt::format(" -d {}\n", in_quotes(option.text));
}

constexpr const char* kMade = "# Made by terrace-docgen from the option tables. Do not edit.\n\n";

bool takes_file(const ProgramHelp& help) {
  return std::any_of(help.arguments.begin(), help.arguments.end(),
                     [](const OptionHelp& argument) { return argument.is_file; });
}

}  // namespace

Scripts fish_completions(const Programs& programs) {
  Scripts scripts;
  scripts.terrace = fmt::format("{}complete -c terrace -f\n", kMade);
  for (const CommandHelp& command : programs.terrace)
    scripts.terrace += fmt::format("complete -c terrace -n __fish_use_subcommand -a {} -d {}\n", command.name,
                                   in_quotes(command.summary));
  for (const CommandHelp& command : programs.terrace) {
    const std::string where = fmt::format("-c terrace -n '__fish_seen_subcommand_from {}'", command.name);
    scripts.terrace += "\n";
    if (takes_file(command.help)) scripts.terrace += fmt::format("complete {} -F\n", where);
    for (const OptionHelp& option : command.help.options) scripts.terrace += line_of(option, where);
  }
  scripts.node = fmt::format("{}complete -c terrace-node -f\n", kMade);
  for (const OptionHelp& option : programs.node.options) scripts.node += line_of(option, "-c terrace-node");
  return scripts;
}

}  // namespace terrace::docgen
