// Chat templates: the Jinja language as model files use it, rendered byte for byte as the Python package jinja2 does in
// the environment that Hugging Face's transformers builds for them: trim_blocks and lstrip_blocks on, break and
// continue, {% generation %}, tojson without HTML escapes, raise_exception(), strftime_now(). Lists may be changed
// (append, pop): some files need it. docs/templates.md has the language; include, import, extends and block are
// refused by name.
//
//   Source -> tokens (lexer) -> a checked tree (parser) -> text (interpreter)
//
// Said       Text of people and models can spell control tokens. Each string of the variables may be marked as *said*:
//            the mark stays on its bytes whatever the template does with them, and comes back as ranges of the output.
// Threads    A Template is immutable; any number of threads may render it at once.
// Source     jinja2 3.1 (documentation and behaviour), transformers' chat_template_utils.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/text/jinja/limits.h"

namespace terrace::text::jinja {

struct Program;

// Bytes [begin, end) of a text.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Range&) const = default;
};

struct Rendered {
  std::string text;         // UTF-8
  std::vector<Range> said;  // rising, disjoint, not empty, whole characters
};

struct RenderOptions {
  Limits limits;
  // What strftime_now() formats: local time, every field set (as localtime_r() does).
  std::tm now = {};
  // Names of variables whose strings, at any depth and keys included, are said. Not said is the value of a key "role"
  // that has only letters a-z and underscores: templates build marks of it, and alone it is none.
  std::vector<std::string> said = {};
};

class Template {
 public:
  // Parses. Errors name the line.
  //   kCorrupt      not UTF-8, or no template: what was found, what was expected
  //   kUnsupported  a statement that needs other files: include, import, from, extends, block
  //   kOutOfMemory  longer or deeper than `limits` allow, by name
  static Result<Template> compile(std::string_view source, const Limits& limits = {});

  // `variables` is an object; null is None. Errors:
  //   kRefused      the template refuses: its raise_exception() message alone; or "line N: ..." where it does with a
  //                 value what cannot be done (an attribute of an undefined one, say)
  //   kUnsupported  a filter, test or method that this interpreter does not have, by name
  //   kOutOfMemory  a limit, by name
  //   kInvalidArgument  `variables` is no object, is not UTF-8, or holds a number beyond 64 bits
  Result<Rendered> render(const nlohmann::ordered_json& variables, const RenderOptions& options) const;

  // Whether the source reads the variable `name` anywhere: does this template know tools, or a thinking switch?
  bool reads(std::string_view name) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

// This machine's local time, now.
std::tm local_time();
// "2026-03-14T15:09:26" as local time. kInvalidArgument: another form, or no such day or time.
Result<std::tm> parse_local_time(std::string_view text);

}  // namespace terrace::text::jinja
