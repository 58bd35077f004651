// JSON Schema to rules. docs/grammars.md says what is held and what is refused.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

// Rules whose texts are JSON values valid against `schema`; not all such values (docs/grammars.md says which are left
// out). Errors as Grammar::from_json_schema().
Result<Rules> rules_from_json_schema(std::string_view schema);

}  // namespace terrace::sampler::grammar
