// GBNF, the notation of llama.cpp's grammars, to rules. docs/grammars.md describes it.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

// The rules of `text`; the first is the one named root. kInvalidArgument: names line and column.
Result<Rules> parse_gbnf(std::string_view text);

}  // namespace terrace::sampler::grammar
