// Text that a user gives: an argument, a file (common/base/text_file.h), or standard input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace terrace::app {

// Standard input to its end, bytes as they are.
Result<std::string> read_stdin();

// Token ids as users give them: a JSON array of numbers from 0 to `most`. kInvalidArgument: the text is anything else;
// the sentence begins with `name` and says which entry.
Result<std::vector<std::int32_t>> read_ids(std::string_view text, const std::string& name, std::int32_t most);

}  // namespace terrace::app
