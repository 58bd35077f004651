// What an option table says about itself: --help and --print-config.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/options.h"
#include "common/base/version.h"

namespace terrace {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kHelpColumn = 30;
constexpr const char* kSourceNames[] = {"default", "file", "environment", "flag"};  // by Option::Source

// Appends `text`, broken at spaces, to a line that is `column` long; further lines begin at kHelpColumn.
void append_wrapped(std::string& out, std::size_t column, std::string_view text) {
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (!first && column + 1 + end > kWidth) {
      out += fmt::format("\n{:{}}", "", kHelpColumn);
      column = kHelpColumn;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    first = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += '\n';
}

void append_row(std::string& out, const std::string& left, const std::string& help) {
  out += left;
  std::size_t column = left.size();
  if (column + 2 > kHelpColumn) {
    out += '\n';
    column = 0;
  }
  out += std::string(kHelpColumn - column, ' ');
  append_wrapped(out, kHelpColumn, help);
}

std::string full_text(const std::string& help, const std::vector<std::string>& details) {
  std::string text = help;
  for (std::size_t i = 0; i < details.size(); ++i) text += (i == 0 ? " (" : "; ") + details[i];
  return details.empty() ? text : text + ")";
}

}  // namespace

std::vector<std::string> OptionTable::details_of(const Option& option) {
  std::vector<std::string> details;
  if (option.range_)
    if (std::string range = describe_range(option.target_, *option.range_); !range.empty())
      details.push_back(std::move(range));
  if (is_repeatable(option.target_)) details.push_back("may be repeated");
  if (option.required_) details.push_back("required");
  if (!option.default_text_.empty() && !is_flag(option.target_)) details.push_back("default " + option.default_text_);
  return details;
}

ProgramHelp OptionTable::describe() const {
  const auto row = [](const Option& option) {
    OptionHelp help;
    help.name = option.name_;
    help.short_name = option.short_name_;
    help.value_name = option.value_name_;
    help.text = full_text(option.help_, details_of(option));
    help.group = option.group_;
    if (const auto* choice = std::get_if<ChoiceTarget>(&option.target_)) help.choices = choice->names;
    help.is_file = std::holds_alternative<std::filesystem::path*>(option.target_) ||
                   std::holds_alternative<std::optional<std::filesystem::path>*>(option.target_) ||
                   std::holds_alternative<std::vector<std::filesystem::path>*>(option.target_);
    help.repeatable = is_repeatable(option.target_);
    help.required = option.required_;
    return help;
  };
  ProgramHelp help{program_, summary_, {}, {}};
  for (const auto& p : positionals_) help.arguments.push_back(row(*p));
  // The built-in options were declared first and are shown last.
  std::vector<std::string> groups;
  for (const auto& option : options_)
    if (std::find(groups.begin(), groups.end(), option->group_) == groups.end()) groups.push_back(option->group_);
  std::rotate(groups.begin(), groups.begin() + 1, groups.end());
  for (const std::string& group : groups)
    for (const auto& option : options_)
      if (option->group_ == group) help.options.push_back(row(*option));
  return help;
}

std::string OptionTable::help() const {
  const ProgramHelp shown = describe();
  std::string usage = fmt::format("usage: {} [options]", shown.program);
  for (const OptionHelp& p : shown.arguments) {
    const std::string name = p.name + (p.repeatable ? "..." : "");
    usage += p.required ? " " + name : " [" + name + "]";
  }
  std::string out = fmt::format("{}: {}\n\n{}\n", shown.program, shown.summary, usage);
  if (!shown.arguments.empty()) out += "\nArguments:\n";
  for (const OptionHelp& p : shown.arguments) append_row(out, "  " + p.name, p.text);
  std::string group;
  for (const OptionHelp& option : shown.options) {
    if (option.group != group) out += fmt::format("\n{}:\n", option.group);
    group = option.group;
    const std::string letter = option.short_name ? fmt::format("-{}, ", option.short_name) : "    ";
    const std::string value = option.value_name.empty() ? "" : " " + option.value_name;
    append_row(out, fmt::format("  {}--{}{}", letter, option.name, value), option.text);
  }
  out +=
      "\nEvery option is also a TERRACE_ variable (--max-tokens: TERRACE_MAX_TOKENS) and a key of the TOML file\n"
      "(max-tokens = 64). A flag wins over the environment, that over the file. Lists in a variable are separated\n"
      "by commas. Sizes are written 24G, 512M; times 20ms, 1.5s.\n";
  return out;
}

std::string OptionTable::print_config() const {
  std::string out = fmt::format("# {} {}: the options in force\n", program_, version());
  for (const auto& option : options_) {
    if (!option->in_file_) continue;
    if (const auto value = target_as_toml(option->target_)) {
      out += fmt::format("{:<40}  # {}\n", fmt::format("{} = {}", option->name_, *value),
                         kSourceNames[static_cast<std::size_t>(option->source_)]);
    } else {
      out += fmt::format("# {} is not set{}\n", option->name_,
                         option->default_text_.empty() ? "" : " (" + option->default_text_ + ")");
    }
  }
  return out;
}

}  // namespace terrace
