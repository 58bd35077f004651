// The pieces of JSON's grammar (RFC 8259) as expressions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

// At most one white-space character: the only place where texts could otherwise go on without saying anything.
Expression gap();

// One character of a string in any of its JSON forms: raw, escaped, as \uXXXX or as a pair of surrogates.
Expression string_character();
// A string of `min` to `max` code points.
Expression string_text(std::uint32_t min, std::uint32_t max);
// One character of `ranges` in its shortest JSON form; every other form of it is left out.
Expression encoded_character(const std::vector<CodePointRange>& ranges);
// A member's name that is none of `names`, without escapes.
Expression other_name(const std::vector<std::string>& names);

// Numbers of so many digits that a double tells them apart, or nearly: -999999999999999999 to 999999999999999999.
Expression integer_text();
// The same with a fraction of at most 16 digits and an exponent of at most 2.
Expression number_text();

// Between elements of an array or members of an object, each of which ends with its own gap.
Expression comma();
// open gap (elements, which end with their gap) close
Expression bracketed(std::string open, Expression elements, std::string close);

}  // namespace terrace::sampler::grammar
