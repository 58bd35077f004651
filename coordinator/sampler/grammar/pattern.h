// Regular expressions of `pattern` (ECMA-262, as JSON Schema has them) as expressions over the JSON text of a string.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

// The inside of a JSON string whose value the pattern is found in: anywhere, unless ^ and $ stand at its ends. Each
// character is written in its shortest form. Held: characters, escapes, classes, \d \w \s and their opposites, .,
// groups,
// |, ? * + {m,n} (lazy or not), ^ and $ at the ends of the whole pattern's alternatives.
// kUnsupported: what no automaton holds or is rarely used (lookaround, backreferences, \b, \p, ^ or $ elsewhere);
// kInvalidArgument: not a pattern. Both name the place, in bytes from 0.
Result<Expression> pattern_text(std::string_view pattern);

}  // namespace terrace::sampler::grammar
