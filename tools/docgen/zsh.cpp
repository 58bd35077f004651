#include <fmt/format.h>

#include "tools/docgen/completions.h"

namespace terrace::docgen {
namespace {

// Text within '...' and a part of _arguments, where brackets and colons have a meaning.
std::string in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string action_of(const OptionHelp& option) {
  if (!option.choices.empty()) return fmt::format("({})", fmt::join(option.choices, " "));
  return option.is_file ? "_files" : "";
}

std::string spec_of(const OptionHelp& option) {
  const std::string value =
      option.value_name.empty() ? "" : fmt::format(":{}:{}", in_quotes(option.value_name), action_of(option));
  const std::string text = fmt::format("[{}]{}", in_quotes(option.text), value);
  const std::string equals = option.value_name.empty() ? "" : "=";
  const std::string star = option.repeatable ? "*" : "";
  if (option.short_name == '\0') return fmt::format("'{}--{}{}{}'", star, option.name, equals, text);
  const std::string others = option.repeatable ? "'*'" : fmt::format("'(-{0} --{1})'", option.short_name, option.name);
  return fmt::format("{}{{-{},--{}{}}}'{}'", others, option.short_name, option.name, equals, text);
}

std::string arguments_of(const ProgramHelp& help, std::string_view indent) {
  std::string out = fmt::format("{}_arguments -S", indent);
  for (const OptionHelp& option : help.options) out += fmt::format(" \\\n{}  {}", indent, spec_of(option));
  for (const OptionHelp& argument : help.arguments)
    out += fmt::format(" \\\n{}  '{}:{}:{}'", indent, argument.repeatable ? "*" : "", in_quotes(argument.name),
                       action_of(argument));
  return out + "\n";
}

constexpr const char* kMade = "# Made by terrace-docgen from the option tables. Do not edit.\n\n";

}  // namespace

Scripts zsh_completions(const Programs& programs) {
  std::string list, cases;
  for (const CommandHelp& command : programs.terrace) {
    list += fmt::format("    '{}:{}'\n", command.name, in_quotes(command.summary));
    cases += fmt::format("    {})\n{}      ;;\n", command.name, arguments_of(command.help, "      "));
  }
  Scripts scripts;
  scripts.terrace = fmt::format(
      "#compdef terrace\n{}_terrace() {{\n  local -a commands\n  commands=(\n{}    'help:Show a command and its "
      "options.'\n"
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n{}"
      "    help) _describe command commands ;;\n  esac\n}}\n\n_terrace \"$@\"\n",
      kMade, list, cases);
  scripts.node = fmt::format("#compdef terrace-node\n{}{}", kMade, arguments_of(programs.node, ""));
  return scripts;
}

}  // namespace terrace::docgen
