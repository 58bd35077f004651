#pragma once

#include "coordinator/text/jinja/value.h"

namespace terrace::text::jinja {

// Python's `text % values`: conversions d i u f F e E g G x X o c s r %, flags, width and precision, names in
// parentheses where `values` is an object. Throws Failure where Python raises.
Text percent_format(Heap& heap, const Text& format, const Value& values);

}  // namespace terrace::text::jinja
