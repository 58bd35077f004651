#include "tools/docgen/man_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/version.h"

namespace terrace::docgen {
namespace {

// Text of a line: roff's own characters mean nothing in it.
std::string text(std::string_view plain) {
  std::string out;
  for (const char c : plain) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::string entry(const OptionHelp& option) {
  const std::string letter = option.short_name == '\0' ? "" : fmt::format("\\fB\\-{}\\fR, ", option.short_name);
  const std::string value = option.value_name.empty() ? "" : fmt::format(" \\fI{}\\fR", text(option.value_name));
  return fmt::format(".TP\n{}\\fB\\-\\-{}\\fR{}\n{}\n", letter, text(option.name), value, text(option.text));
}

std::string argument_entry(const OptionHelp& argument) {
  return fmt::format(".TP\n\\fI{}\\fR\n{}\n", text(argument.name), text(argument.text));
}

bool same(const OptionHelp& a, const OptionHelp& b) {
  return a.name == b.name && a.text == b.text && a.value_name == b.value_name && a.short_name == b.short_name;
}

// Told once: the same in more than one command.
bool is_shared(const OptionHelp& option, const Programs& programs) {
  std::size_t n = 0;
  for (const CommandHelp& command : programs.terrace)
    n += static_cast<std::size_t>(std::count_if(command.help.options.begin(), command.help.options.end(),
                                                [&](const OptionHelp& other) { return same(option, other); }));
  return n > 1;
}

std::vector<OptionHelp> shared_options(const Programs& programs) {
  std::vector<OptionHelp> shared;
  for (const CommandHelp& command : programs.terrace)
    for (const OptionHelp& option : command.help.options)
      if (is_shared(option, programs) &&
          std::none_of(shared.begin(), shared.end(), [&](const OptionHelp& other) { return same(option, other); }))
        shared.push_back(option);
  return shared;
}

std::string synopsis(const ProgramHelp& help) {
  std::string out = fmt::format("\\fB{}\\fR [\\fIoptions\\fR]", text(help.program));
  for (const OptionHelp& argument : help.arguments) {
    const std::string name = fmt::format("\\fI{}\\fR{}", text(argument.name), argument.repeatable ? "..." : "");
    out += argument.required ? " " + name : " [" + name + "]";
  }
  return out;
}

std::string heading(std::string_view title, std::string_view summary) {
  // Without a date: the same tables give the same bytes.
  std::string upper(title);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
  return fmt::format(
      ".\\\" Made by terrace\\-docgen from the option tables. Do not edit.\n.TH \"{}\" 1 \"\" \"Terrace {}\" "
      "\"User Commands\"\n.SH NAME\n{} \\- {}\n",
      text(upper), version(), text(title), text(summary));
}

// What both programs share: where options come from, and how they end.
constexpr const char* kConfiguration = R"(.SH CONFIGURATION
Every option is also a variable of the environment
.RB ( \-\-max\-tokens :
.BR TERRACE_MAX_TOKENS )
and a key of the TOML file
.RB ( "max\-tokens = 64" ).
A flag wins over the environment, that over the file.
Keys at the top of the file are for every program that knows them; a table
.B [generate]
is for that command alone,
.B [terrace\-node]
for the node.
Lists in a variable are separated by commas.
Sizes are written 24G, 512M; times 20ms, 1.5s.
)";
constexpr const char* kExit = R"(.SH EXIT STATUS
.TP
.B 0
success
.TP
.B 1
failure; one sentence on standard error names the file, tensor, node or offset, and what to do
.TP
.B 2
usage
)";

std::string command_section(const CommandHelp& command, const Programs& programs) {
  std::string out = fmt::format(".SS {}\n{}\n.PP\n{}\n", text(command.help.program), synopsis(command.help),
                                text(command.help.summary));
  for (const OptionHelp& argument : command.help.arguments) out += argument_entry(argument);
  std::string shared;
  for (const OptionHelp& option : command.help.options) {
    if (is_shared(option, programs))
      shared += fmt::format("{}\\fB\\-\\-{}\\fR", shared.empty() ? "" : ", ", text(option.name));
    else
      out += entry(option);
  }
  if (!shared.empty()) out += fmt::format(".PP\nand, described below: {}.\n", shared);
  return out;
}

}  // namespace

std::string terrace_page(const Programs& programs) {
  std::string out = heading("terrace", "run one large mixture-of-experts model over several machines");
  out += ".SH SYNOPSIS\n\\fBterrace\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n";
  out +=
      ".SH DESCRIPTION\nRuns a mixture-of-experts language model from a GGUF file over this machine and tier nodes "
      "\n.RB ( terrace\\-node (1)),\nwhich hold some of its experts and compute them where they lie. Placement never "
      "changes a "
      "token.\nStandard output has the result, standard error all else.\n.SH COMMANDS\n";
  for (const CommandHelp& command : programs.terrace) out += command_section(command, programs);
  out += ".SH OPTIONS OF SEVERAL COMMANDS\n";
  for (const OptionHelp& option : shared_options(programs)) out += entry(option);
  out += kConfiguration;
  out += R"(.SH ENVIRONMENT
.TP
.B TERRACE_*
options, as above
.TP
.BR XDG_CACHE_HOME ", " XDG_STATE_HOME ", " HOME
where caches and the history of conversations lie
.TP
.BR NO_COLOR ", " TERM
whether the terminal can show colour and lines that are drawn anew
.SH FILES
.TP
.I terrace.toml
in the working directory: options
.TP
.I $XDG_CACHE_HOME/terrace
hashes of model files, so that they are computed once (without the variable: ~/.cache/terrace)
.TP
.I $XDG_STATE_HOME/terrace/chat_history
lines that were typed into
.BR "terrace chat" ,
readable by their owner alone (without the variable: ~/.local/state/terrace/chat_history)
)";
  return out + kExit + ".SH SEE ALSO\n.BR terrace\\-node (1)\n";
}

std::string node_page(const Programs& programs) {
  std::string out = heading("terrace-node", "compute experts of a model for coordinators");
  out += fmt::format(".SH SYNOPSIS\n{}\n", synopsis(programs.node));
  out +=
      ".SH DESCRIPTION\nHolds the experts that a coordinator\n.RB ( terrace (1))\ngives it, and computes them. "
      "When it is ready it prints one line,\n.RI \"\\(lqlistening on \" HOST:PORT \\(rq,\non standard error. SIGTERM "
      "lets sessions end and ends it with status 0.\n.SH OPTIONS\n";
  for (const OptionHelp& option : programs.node.options) out += entry(option);
  return out + kConfiguration + kExit + ".SH SEE ALSO\n.BR terrace (1)\n";
}

}  // namespace terrace::docgen
