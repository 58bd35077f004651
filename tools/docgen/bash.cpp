#include <fmt/format.h>

#include <algorithm>

#include "tools/docgen/completions.h"

namespace terrace::docgen {
namespace {

std::string flags_of(const ProgramHelp& help) {
  std::string words;
  for (const OptionHelp& option : help.options) {
    words += (words.empty() ? "--" : " --") + option.name;
    if (option.short_name != '\0') words += fmt::format(" -{}", option.short_name);
  }
  return words;
}

std::string pattern_of(const OptionHelp& option) {
  return option.short_name == '\0' ? "--" + option.name : fmt::format("--{}|-{}", option.name, option.short_name);
}

// The branches of `case "$prev"`: what a flag's value may be. Any other flag with a value offers nothing.
std::string values_of(const ProgramHelp& help, std::string_view indent) {
  std::string files, nothing, out;
  for (const OptionHelp& option : help.options) {
    if (option.value_name.empty()) continue;
    if (!option.choices.empty()) {
      out += fmt::format("{}{}) _terrace_words \"{}\"; return ;;\n", indent, pattern_of(option),
                         fmt::join(option.choices, " "));
    } else {
      std::string& list = option.is_file ? files : nothing;
      list += (list.empty() ? "" : "|") + pattern_of(option);
    }
  }
  if (!files.empty()) out += fmt::format("{}{}) _terrace_files; return ;;\n", indent, files);
  if (!nothing.empty()) out += fmt::format("{}{}) return ;;\n", indent, nothing);
  return out;
}

// Both scripts are loaded into one shell, so both bring these, under the same names.
constexpr const char* kCommon = R"(# Made by terrace-docgen from the option tables. Do not edit.

_terrace_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_terrace_files() { mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
# "--flag=value" arrives as three words.
_terrace_begin() {
  COMPREPLY=()
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD-1]}
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" && $COMP_CWORD -ge 2 ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
}
)";

std::string body_of(const ProgramHelp& help, std::string_view indent) {
  const std::string values = values_of(help, std::string(indent) + "  ");
  std::string out;
  if (!values.empty()) out += fmt::format("{}case \"$prev\" in\n{}{}esac\n", indent, values, indent);
  out += fmt::format("{}if [[ $cur == -* ]]; then\n{}  _terrace_words \"{}\"\n", indent, indent, flags_of(help));
  const bool takes_file = std::any_of(help.arguments.begin(), help.arguments.end(),
                                      [](const OptionHelp& argument) { return argument.is_file; });
  if (takes_file) out += fmt::format("{}else\n{}  _terrace_files\n", indent, indent);
  return out + fmt::format("{}fi\n", indent);
}

}  // namespace

Scripts bash_completions(const Programs& programs) {
  std::string commands;
  std::string cases;
  for (const CommandHelp& command : programs.terrace) {
    commands += command.name + " ";
    cases += fmt::format("    {})\n{}      ;;\n", command.name, body_of(command.help, "      "));
  }
  Scripts scripts;
  scripts.terrace = fmt::format(
      "{}\n_terrace() {{\n  local cur prev\n  _terrace_begin\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then\n    _terrace_words \"{}help --help --version\"\n    return\n  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}    help) _terrace_words \"{}\" ;;\n  esac\n}}\n"
      "complete -o filenames -F _terrace terrace\n",
      kCommon, commands, cases, commands.substr(0, commands.size() - 1));
  scripts.node = fmt::format(
      "{}\n_terrace_node() {{\n  local cur prev\n  _terrace_begin\n{}}}\n"
      "complete -o filenames -F _terrace_node terrace-node\n",
      kCommon, body_of(programs.node, "  "));
  return scripts;
}

}  // namespace terrace::docgen
