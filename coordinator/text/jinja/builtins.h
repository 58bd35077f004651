// The filters, tests, functions and methods of the language, by name. A new one is a function and a row of a table.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/text/jinja/interpreter.h"

namespace terrace::text::jinja {

struct FilterEntry {
  const char* name;
  Value (*run)(Interpreter&, const Value& input, const CallArguments&);
};
struct TestEntry {
  const char* name;
  bool (*run)(Interpreter&, const Value& input, const CallArguments&);
};

// Null: there is none of that name.
const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);
const Function* find_function(std::string_view name);
// A method of the value's type. Throws kUnsupported where Python has it and this interpreter does not.
const MethodEntry* find_method(const Value& self, std::string_view name);

// The rows behind these, by file.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> list_filters();
std::span<const MethodEntry> text_methods();

// The arguments in the order of `parameters`, as Python binds them; none where the call gives none. The first
// `required` must be given. Refused: too many, unknown, missing or twice, with the callee's name.
std::vector<std::optional<Value>> bind(std::string_view callee, const CallArguments& arguments,
                                       std::initializer_list<const char*> parameters, std::size_t required = 0);
// An argument that has to be an int.
std::int64_t integer_of(const Value& value);
// An argument that has to be a str; refused with the callee's name.
const Text& text_argument(std::string_view callee, const Value& value);

// Value of JSON text: the filter from_json. Refused: what is no JSON.
Value value_of_json(Heap& heap, const Text& json);

}  // namespace terrace::text::jinja
