// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "coordinator/text/jinja/value.h"

namespace terrace::text::jinja {

// str(value)
Text text_of(Heap& heap, const Value& value);
// repr(value)
Text repr_of(Heap& heap, const Value& value);
// The shortest digits that read back as `number`, as Python's repr() writes them: 3.0, 1e-07, inf.
std::string repr_of_float(double number);

struct JsonForm {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; none: one line
  std::string between_items = ", ";
  std::string between_key_and_value = ": ";
};
// json.dumps(value): refused where Python's raises, for undefined values above all.
Text json_of(Heap& heap, const Value& value, const JsonForm& form);

}  // namespace terrace::text::jinja
