// Tokens to the checked tree.
#pragma once

#include <string_view>

#include "coordinator/text/jinja/limits.h"
#include "coordinator/text/jinja/syntax.h"

namespace terrace::text::jinja {

// Throws Failure: see Template::compile().
Program parse(std::string_view source, const Limits& limits);

}  // namespace terrace::text::jinja
