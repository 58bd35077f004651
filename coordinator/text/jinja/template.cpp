#include "coordinator/text/jinja/template.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/utf8.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/interpreter.h"
#include "coordinator/text/jinja/parser.h"

namespace terrace::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void wrong_variables(const std::string& what) { throw Failure{ErrorCode::kInvalidArgument, what, true}; }

// JSON as values of a template.
class Reader {
 public:
  // `said`: the strings are marked.
  Reader(Heap& heap, bool said) : heap_(heap), said_(said) {}

  Value read(const Json& json) {
    const Nesting nesting(heap_, depth_);
    switch (json.type()) {
      case Json::value_t::null:
        return Value();
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
        return Value(json.get<std::int64_t>());
      case Json::value_t::number_unsigned:
        if (json.get<std::uint64_t>() > INT64_MAX)
          wrong_variables(
              fmt::format("the number {} is beyond the 64 bits that integers have in a template", json.dump()));
        return Value(json.get<std::int64_t>());
      case Json::value_t::number_float:
        return Value(json.get<double>());
      case Json::value_t::string:
        return string(json.get_ref<const std::string&>(), said_);
      case Json::value_t::array: {
        std::vector<Value> items;
        for (const Json& item : json) items.push_back(read(item));
        return heap_.sequence(std::move(items));
      }
      case Json::value_t::object: {
        Dict* const dict = heap_.dict();
        for (const auto& [key, value] : json.items())
          heap_.set(*dict, string(key, said_),
                    is_plain_role(key, value) ? string(value.get_ref<const std::string&>(), false) : read(value));
        return Value(dict);
      }
      default:
        wrong_variables("a variable is no JSON value");
    }
  }

 private:
  Value string(const std::string& bytes, bool said) {
    if (!is_utf8(bytes)) wrong_variables("a string of the variables is not UTF-8");
    return heap_.string(Text(bytes, said));
  }

  static bool is_plain_role(std::string_view key, const Json& value) {
    if (key != "role" || !value.is_string()) return false;
    return std::ranges::all_of(value.get_ref<const std::string&>(),
                               [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  }

  Heap& heap_;
  const bool said_;
  std::uint32_t depth_ = 0;
};

Dict* read_variables(Heap& heap, const Json& variables, const std::vector<std::string>& said) {
  if (!variables.is_object()) wrong_variables("a template's variables are a JSON object");
  Dict* const made = heap.dict();
  for (const auto& [name, value] : variables.items()) {
    if (!is_utf8(name)) wrong_variables("a variable's name is not UTF-8");
    Reader reader(heap, std::ranges::find(said, name) != said.end());
    heap.set(*made, heap.string(name), reader.read(value));
  }
  return made;
}

}  // namespace

Value value_of_json(Heap& heap, const Text& json) {
  heap.read(json.size());
  heap.charge(json.size());  // for the parser's own tree
  const Json parsed = Json::parse(json.bytes(), nullptr, false);
  if (parsed.is_discarded()) refuse("from_json: the text is no JSON");
  return Reader(heap, json.any_said()).read(parsed);
}

Result<Template> Template::compile(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("the template has {} bytes; at most {} are read (limit: size of the source)",
                             source.size(), limits.source_bytes));
  if (!is_utf8(source)) return Error(ErrorCode::kCorrupt, "the template is not UTF-8");
  try {
    return Template(std::make_shared<const Program>(parse(source, limits)));
  } catch (const Failure& failure) {
    return Error(failure.code, failure.text);
  }
}

Result<Rendered> Template::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  try {
    Interpreter interpreter(*program_, options.limits, options.now);
    const Text text = interpreter.run(*read_variables(interpreter.heap(), variables, options.said));
    return Rendered{text.bytes(), text.said()};
  } catch (const Failure& failure) {
    return Error(failure.code, failure.text);
  }
}

bool Template::reads(std::string_view name) const { return program_->names.contains(std::string(name)); }

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  (void)::localtime_r(&now, &local);
  return local;
}

Result<std::tm> parse_local_time(std::string_view text) {
  std::tm time = {};
  const std::string bytes(text);
  const char* const end = ::strptime(bytes.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  const bool whole = end != nullptr && *end == '\0' && bytes.size() == 19;
  std::tm normalised = time;
  normalised.tm_isdst = -1;
  // The 30th of February is taken by strptime(), and becomes another day here.
  if (whole && ::mktime(&normalised) != -1 && normalised.tm_mday == time.tm_mday && normalised.tm_mon == time.tm_mon)
    return normalised;
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} is no local time; write it as 2026-03-14T15:09:26", bytes));
}

}  // namespace terrace::text::jinja
