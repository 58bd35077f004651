#include "common/base/options.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "common/base/check.h"
#include "common/base/split_list.h"
#include "common/base/suggestion.h"
#include "common/base/text_file.h"
#include "common/base/version.h"

namespace terrace {
namespace {

constexpr std::string_view kPrefix = "TERRACE_";
constexpr std::string_view kTestPrefix = "TERRACE_TEST_";  // belongs to the tests, never an option
constexpr const char* kDefaultFile = "terrace.toml";
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;  // of a configuration
constexpr const char* kBuiltinGroup = "Configuration and help";

std::string environment_name_of(std::string_view option) {
  std::string name(kPrefix);
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::vector<std::string> items_of(std::string_view list) {
  const std::vector<std::string_view> items = split_list(list);
  return {items.begin(), items.end()};
}

Error usage_error(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

Result<std::string> scalar_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return fmt::format("{}", i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = node.as_boolean()) return std::string(b->get() ? "true" : "false");
  return usage_error("takes text, a number, true or false");
}

Result<std::vector<std::string>> node_texts(const toml::node& node, bool repeatable) {
  std::vector<std::string> texts;
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    TERRACE_ASSIGN_OR_RETURN(std::string text, scalar_text(node));
    texts.push_back(std::move(text));
    return texts;
  }
  if (!repeatable) return usage_error("takes one value, not a list");
  for (const toml::node& item : *array) {
    TERRACE_ASSIGN_OR_RETURN(std::string text, scalar_text(item));
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<toml::table> parse_toml(const std::filesystem::path& file) {
  const auto text = read_text_file(file, kMostFileBytes);
  if (!text.ok() && text.error().code() == ErrorCode::kNotFound)
    return Error(ErrorCode::kNotFound, fmt::format("{}: there is no such configuration file", file.string()));
  if (!text.ok()) return text.error().in("configuration file");
  try {
    return toml::parse(*text);
  } catch (const toml::parse_error& e) {
    return usage_error(fmt::format("{}:{}: {}", file.string(), e.source().begin.line, std::string(e.description())));
  }
}

}  // namespace

Option::Option(std::string name, OptionTarget target, std::string help, std::string group)
    : name_(std::move(name)),
      target_(std::move(target)),
      help_(std::move(help)),
      group_(std::move(group)),
      value_name_(default_value_name(target_)),
      default_text_(target_as_text(target_).value_or("")) {}

Option& Option::short_name(char letter) {
  short_name_ = letter;
  return *this;
}

Option& Option::range(long double low, long double high) {
  range_ = OptionRange{low, high};
  return *this;
}

Option& Option::value_name(std::string name) {
  value_name_ = std::move(name);
  return *this;
}

Option& Option::default_text(std::string text) {
  default_text_ = std::move(text);
  return *this;
}

Option& Option::required() {
  required_ = true;
  return *this;
}

std::string Option::environment_name() const { return environment_name_of(name_); }

struct OptionTable::Builtin {
  std::optional<std::filesystem::path> config;
  bool print_config = false;
  bool help = false;
  bool version = false;
};

struct OptionTable::CommandLine {
  std::map<Option*, std::vector<std::string>> given;

  bool has(const Option* option) const { return given.contains(const_cast<Option*>(option)); }
};

OptionTable::OptionTable(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)), builtin_(std::make_unique<Builtin>()) {
  add_builtin("config", &builtin_->config, "read options from this TOML file").in_environment_ = true;
  options_.back()->default_text("terrace.toml in the working directory, if there is one");
  add_builtin("print-config", &builtin_->print_config, "print every option, its value and where it comes from");
  add_builtin("help", &builtin_->help, "print this text").short_name('h');
  add_builtin("version", &builtin_->version, "print the version");
}

OptionTable::~OptionTable() = default;
OptionTable::OptionTable(OptionTable&&) noexcept = default;
OptionTable& OptionTable::operator=(OptionTable&&) noexcept = default;

OptionTable& OptionTable::group(std::string heading) {
  group_ = std::move(heading);
  return *this;
}

Option& OptionTable::add(std::string name, OptionTarget target, std::string help) {
  TERRACE_CHECK(find(name) == nullptr, "two options have one name");
  options_.push_back(std::make_unique<Option>(std::move(name), std::move(target), std::move(help), group_));
  return *options_.back();
}

Option& OptionTable::add_builtin(std::string name, OptionTarget target, std::string help) {
  Option& option = add(std::move(name), std::move(target), std::move(help));
  option.group_ = kBuiltinGroup;
  option.in_file_ = false;
  option.in_environment_ = false;
  return option;
}

Option& OptionTable::add_choice(std::string name, ChoiceTarget target, std::string help) {
  return add(std::move(name), OptionTarget(std::move(target)), std::move(help));
}

Option& OptionTable::add_positional(std::string name, OptionTarget target, std::string help) {
  TERRACE_CHECK(positionals_.empty() || !is_repeatable(positionals_.back()->target()),
                "an argument behind one that takes the rest");
  positionals_.push_back(std::make_unique<Option>(std::move(name), std::move(target), std::move(help), "Arguments"));
  return *positionals_.back();
}

void OptionTable::add_sibling(std::string section, std::vector<std::string> option_names) {
  siblings_.push_back({std::move(section), std::move(option_names)});
}

std::string OptionTable::section() const {
  std::string name = program_.starts_with("terrace ") ? program_.substr(8) : program_;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::vector<std::string> OptionTable::option_names() const {
  std::vector<std::string> names;
  for (const auto& option : options_) names.push_back(option->name_);
  return names;
}

Option* OptionTable::find(std::string_view name) const {
  for (const auto& option : options_)
    if (option->name_ == name) return option.get();
  return nullptr;
}

bool OptionTable::known_elsewhere(std::string_view name) const {
  return std::any_of(siblings_.begin(), siblings_.end(), [name](const Sibling& sibling) {
    return std::find(sibling.names.begin(), sibling.names.end(), name) != sibling.names.end();
  });
}

std::vector<std::string> OptionTable::known_names() const {
  std::vector<std::string> names = option_names();
  for (const Sibling& sibling : siblings_) names.insert(names.end(), sibling.names.begin(), sibling.names.end());
  return names;
}

// CLI11 takes "--prompt=" for an option whose value is the next argument; as two arguments it is what was meant.
std::vector<std::string> OptionTable::split_empty_values(std::span<const std::string> arguments) const {
  std::vector<std::string> out;
  bool is_value = false;  // of the flag before it
  bool only_positional = false;
  for (const std::string& argument : arguments) {
    const bool is_flag_text = !is_value && !only_positional && argument.starts_with("--");
    is_value = false;
    only_positional = only_positional || (is_flag_text && argument == "--");
    if (!is_flag_text) {
      out.push_back(argument);
      continue;
    }
    const std::string_view name = std::string_view(argument).substr(2, argument.find('=') - 2);
    const Option* option = find(name);
    const bool takes_value = option != nullptr && !is_flag(option->target_);
    if (takes_value && argument.ends_with('=') && argument.size() == name.size() + 3) {
      out.insert(out.end(), {argument.substr(0, argument.size() - 1), ""});
    } else {
      out.push_back(argument);
      is_value = takes_value && argument.find('=') == std::string::npos;
    }
  }
  return out;
}

Result<OptionTable::CommandLine> OptionTable::read_command_line(std::span<const std::string> arguments) const {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::map<Option*, CLI::Option*> parsers;
  const CLI::callback_t keep_raw = [](const CLI::results_t&) { return true; };
  for (const auto& option : options_) {
    const std::string names =
        (option->short_name_ ? fmt::format("-{},", option->short_name_) : "") + "--" + option->name_;
    parsers[option.get()] =
        is_flag(option->target_) ? app.add_flag(names) : app.add_option(names, keep_raw)->expected(1);
  }
  for (std::size_t i = 0; i < positionals_.size(); ++i) {
    CLI::Option* parser = app.add_option(fmt::format("argument{}", i), keep_raw)->expected(1);
    if (is_repeatable(positionals_[i]->target_)) parser->expected(1, CLI::detail::expected_max_vector_size);
    parsers[positionals_[i].get()] = parser;
  }
  for (const auto& [option, parser] : parsers)
    parser->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);

  std::vector<std::string> reversed = split_empty_values(arguments);
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(std::move(reversed));  // CLI11 takes them from the back
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string_view text = e.what();  // "--prompt: 1 required  missing"
    return usage_error(
        fmt::format("{}: a value is missing (see `{} --help`)", text.substr(0, text.find(':')), program_));
  } catch (const CLI::ParseError& e) {
    return usage_error(fmt::format("{} (see `{} --help`)", e.what(), program_));
  }
  for (const std::string& extra : app.remaining()) {
    if (extra == "--") continue;
    if (extra.size() < 2 || extra[0] != '-') {
      return usage_error(fmt::format("unexpected argument '{}' (see `{} --help`)", extra, program_));
    }
    const std::string flag = extra.substr(0, extra.find('='));
    const std::string_view word = std::string_view(flag).substr(std::min(flag.find_first_not_of('-'), flag.size()));
    const std::string hint = suggestion(word, option_names(), "--");
    return usage_error(fmt::format("unknown flag {}{} (see `{} --help`)", flag, hint, program_));
  }
  CommandLine line;
  for (const auto& [option, parser] : parsers)
    if (parser->count() > 0) line.given[option] = parser->results();
  return line;
}

std::optional<std::filesystem::path> OptionTable::choose_file(const CommandLine& line, const Environment& environment,
                                                              const std::filesystem::path& working_dir) const {
  Option* config = find("config");
  if (line.has(config)) return line.given.at(config).back();
  if (const auto file = environment.get(config->environment_name())) return *file;
  std::error_code error;
  if (std::filesystem::exists(working_dir / kDefaultFile, error))
    return (working_dir / kDefaultFile).lexically_normal();
  return std::nullopt;
}

Status OptionTable::apply_file(const std::filesystem::path& file) {
  TERRACE_ASSIGN_OR_RETURN(const toml::table root, parse_toml(file));
  const auto apply = [&](const toml::table& table, bool own_section) -> Status {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      const std::string where = fmt::format("{}:{}: {}", file.string(), node.source().begin.line, name);
      if (node.is_table()) continue;
      Option* option = find(name);
      if (option == nullptr || !option->in_file_) {
        if (!own_section && known_elsewhere(name)) continue;
        return usage_error(fmt::format("{} is no option{}", where, suggestion(name, known_names())));
      }
      auto texts = node_texts(node, is_repeatable(option->target_));
      if (!texts.ok()) return texts.error().in(where);
      if (auto status = set_target(option->target_, option->range_, *texts); !status.ok())
        return status.error().in(where);
      option->source_ = Option::Source::kFile;
    }
    return {};
  };
  TERRACE_RETURN_IF_ERROR(apply(root, false));

  std::vector<std::string> sections = {section()};
  for (const Sibling& sibling : siblings_) sections.push_back(sibling.section);
  for (const auto& [key, node] : root) {
    if (!node.is_table()) continue;
    const std::string name(key.str());
    if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
      return usage_error(fmt::format("{}:{}: [{}] is no program{}", file.string(), node.source().begin.line, name,
                                     suggestion(name, sections)));
    }
    if (name == section()) TERRACE_RETURN_IF_ERROR(apply(*node.as_table(), true));
  }
  return {};
}

Status OptionTable::apply_environment(const Environment& environment) {
  for (const auto& option : options_) {
    if (!option->in_environment_) continue;
    const std::string name = option->environment_name();
    const std::optional<std::string> text = environment.get(name);
    if (!text) continue;
    const std::vector<std::string> texts =
        is_repeatable(option->target_) ? items_of(*text) : std::vector<std::string>{*text};
    if (auto status = set_target(option->target_, option->range_, texts); !status.ok()) return status.error().in(name);
    option->source_ = Option::Source::kEnvironment;
  }
  return {};
}

Status OptionTable::apply_command_line(const CommandLine& line) {
  const auto apply = [&](Option& option, std::string_view dashes) -> Status {
    if (!line.has(&option)) return {};
    auto status = set_target(option.target_, option.range_, line.given.at(&option));
    if (!status.ok()) return status.error().in(std::string(dashes) + option.name_);
    option.source_ = Option::Source::kFlag;
    return {};
  };
  for (const auto& option : options_) TERRACE_RETURN_IF_ERROR(apply(*option, "--"));
  for (const auto& positional : positionals_) TERRACE_RETURN_IF_ERROR(apply(*positional, ""));
  return {};
}

Status OptionTable::check_required() const {
  for (const auto& option : options_) {
    if (!option->required_ || option->source_ != Option::Source::kDefault) continue;
    return usage_error(fmt::format("--{0} is needed: the flag, {1} in the environment or {0} in the configuration file",
                                   option->name_, option->environment_name()));
  }
  for (const auto& positional : positionals_)
    if (positional->required_ && positional->source_ == Option::Source::kDefault)
      return usage_error(fmt::format("{} is missing (see `{} --help`)", positional->name_, program_));
  return {};
}

void OptionTable::note_unknown_variables(const Environment& environment, std::vector<std::string>& notes) const {
  std::vector<std::string> known;
  for (const std::string& name : known_names()) known.push_back(environment_name_of(name));
  for (const auto& [name, value] : environment.variables()) {
    if (!name.starts_with(kPrefix) || name.starts_with(kTestPrefix)) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    notes.push_back(fmt::format("{} is set, but no option reads it{}", name, suggestion(name, known)));
  }
}

Result<ParseOutcome> OptionTable::parse(std::span<const std::string> arguments, const Environment& environment,
                                        const std::filesystem::path& working_dir) {
  TERRACE_ASSIGN_OR_RETURN(const CommandLine line, read_command_line(arguments));
  ParseOutcome outcome;
  if (line.has(find("help"))) {
    outcome.print = help();
    return outcome;
  }
  if (line.has(find("version"))) {
    outcome.print = fmt::format("{} {}\n", program_, version());
    return outcome;
  }
  outcome.config_file = choose_file(line, environment, working_dir);
  if (outcome.config_file) {
    TERRACE_RETURN_IF_ERROR(apply_file(*outcome.config_file));
    outcome.notes.push_back(fmt::format("options read from {}", outcome.config_file->string()));
  }
  TERRACE_RETURN_IF_ERROR(apply_environment(environment));
  note_unknown_variables(environment, outcome.notes);
  TERRACE_RETURN_IF_ERROR(apply_command_line(line));
  if (builtin_->print_config) {
    outcome.print = print_config();
    return outcome;
  }
  TERRACE_RETURN_IF_ERROR(check_required());
  return outcome;
}

}  // namespace terrace
