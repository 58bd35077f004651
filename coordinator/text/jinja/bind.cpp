#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "coordinator/text/jinja/builtins.h"

namespace terrace::text::jinja {

std::vector<std::optional<Value>> bind(std::string_view callee, const CallArguments& arguments,
                                       std::initializer_list<const char*> parameters, std::size_t required) {
  std::vector<std::optional<Value>> values(parameters.size());
  if (arguments.positional.size() > parameters.size())
    refuse(fmt::format("{}() takes {} argument(s) but {} were given", callee, parameters.size(),
                       arguments.positional.size()));
  std::ranges::copy(arguments.positional, values.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* const parameter =
        std::ranges::find(parameters, name, [](const char* p) { return std::string_view(p); });
    if (parameter == parameters.end())
      refuse(fmt::format("{}() got an unexpected keyword argument '{}'", callee, name));
    auto& slot = values[static_cast<std::size_t>(parameter - parameters.begin())];
    if (slot) refuse(fmt::format("{}() got multiple values for argument '{}'", callee, name));
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values[i]) refuse(fmt::format("{}() missing argument '{}'", callee, parameters.begin()[i]));
  return values;
}

std::int64_t integer_of(const Value& value) {
  if (value.is_undefined()) refuse(value.why());
  if (!value.is_integral()) refuse(fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
  return value.integer();
}

const Text& text_argument(std::string_view callee, const Value& value) {
  if (!value.is_string()) refuse(fmt::format("{}() argument must be str, not {}", callee, type_name(value)));
  return value.text();
}

}  // namespace terrace::text::jinja
