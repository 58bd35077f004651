// terrace template
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/text_file.h"
#include "common/gguf/file.h"
#include "common/json/read_json.h"
#include "coordinator/app/command.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/text_input.h"
#include "coordinator/text/chat_template.h"
#include "coordinator/text/jinja/limits.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::app {
namespace {

using Json = nlohmann::ordered_json;

struct TemplateOptions {
  ModelOptions model;
  std::filesystem::path source;  // empty: the model's
  std::filesystem::path input;
  std::string now;  // empty: this machine's
};

OptionTable make_table(TemplateOptions* o) {
  OptionTable table("terrace template",
                    "Prints what a chat template makes of a conversation, as bytes, with no newline added.");
  table
      .add("input", &o->input, "a JSON object, each key a variable: messages, tools, add_generation_prompt; - is stdin")
      .value_name("FILE")
      .required();
  table.add("template", &o->source, "a template as a file; no model is read then, and no variable added")
      .value_name("FILE")
      .default_text("the model's");
  table.add("now", &o->now, "the local time that the template sees, as 2026-03-14T15:09:26")
      .value_name("DATE")
      .default_text("this machine's");
  add_file_options(table, &o->model);
  return table;
}

Result<Json> read_variables(const std::filesystem::path& input) {
  TERRACE_ASSIGN_OR_RETURN(const std::string bytes, input == "-" ? read_stdin() : read_text_file(input));
  const std::string name = input == "-" ? "standard input" : input.string();
  // The variables' own object, and in each as many as a template may see.
  const JsonBounds bounds{.depth = 1 + text::jinja::Limits().value_depth};
  auto json = read_json<Json>(bytes, bounds);
  if (!json.ok()) return json.error().in(name);
  if (json->is_object()) return json;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{}: no JSON object; give the variables as {{\"messages\": [...]}}", name));
}

// What the template says is its own; other errors are about the file.
Error named(const Error& error, const std::string& file) {
  return error.code() == ErrorCode::kRefused ? error : error.in(file);
}

Result<std::string> render_file(const TemplateOptions& o, const Json& variables, const std::tm& now) {
  TERRACE_ASSIGN_OR_RETURN(const std::string source, read_text_file(o.source));
  const auto made = text::jinja::Template::compile(source);
  if (!made.ok()) return named(made.error(), o.source.string());
  text::jinja::RenderOptions options;
  options.now = now;
  const auto rendered = made->render(variables, options);
  if (!rendered.ok()) return named(rendered.error(), o.source.string());
  return rendered->text;
}

Result<std::string> render_models(const TemplateOptions& o, const Json& variables, const std::tm& now) {
  TERRACE_ASSIGN_OR_RETURN(const std::filesystem::path model, model_file(o.model));
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(model));
  TERRACE_ASSIGN_OR_RETURN(const text::Vocabulary vocabulary, text::vocabulary_from_gguf(file));
  const auto made = text::ChatTemplate::make(vocabulary);
  if (!made.ok()) return named(made.error(), model.filename().string());
  const auto rendered = made->render(variables, now);
  if (!rendered.ok()) return named(rendered.error(), model.filename().string());
  return rendered->text;
}

}  // namespace

std::vector<std::string> template_option_names() {
  TemplateOptions o;
  return make_table(&o).option_names();
}

Status run_template(const CommandContext& context) {
  TemplateOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  std::tm now = text::jinja::local_time();
  if (!o.now.empty()) {
    const auto given = text::jinja::parse_local_time(o.now);
    if (!given.ok()) return given.error().in("--now");
    now = *given;
  }
  TERRACE_ASSIGN_OR_RETURN(const Json variables, read_variables(o.input));
  TERRACE_ASSIGN_OR_RETURN(const std::string text,
                           o.source.empty() ? render_models(o, variables, now) : render_file(o, variables, now));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace terrace::app
