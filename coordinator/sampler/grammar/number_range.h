// Decimal numbers between bounds, as expressions over their digits.
#pragma once

#include <optional>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/expression.h"
#include "coordinator/sampler/grammar/schema.h"

namespace terrace::sampler::grammar {

// Integers within the bounds, without -0 and of at most 18 digits. Nothing: there is none.
std::optional<Expression> integer_range(const std::optional<Bound>& minimum, const std::optional<Bound>& maximum);

// Numbers within the bounds, written without exponent and without -0: below 10^9 in magnitude where a bound is not
// given, with at most 6 digits behind the point or as many as the bounds have. They have at most 15 digits in all, so
// that a reader with doubles finds them on the same side of the bounds. Nothing: there is none. kUnsupported: a bound
// of more than 15 digits.
Result<std::optional<Expression>> number_range(const std::optional<Bound>& minimum,
                                               const std::optional<Bound>& maximum);

}  // namespace terrace::sampler::grammar
