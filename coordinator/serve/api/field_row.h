// A row of the field table with what reads it. The table's parts stand in fields_*.cpp.
#pragma once

#include <span>
#include <string_view>

#include "coordinator/serve/api/ask.h"
#include "coordinator/serve/api/field_table.h"

namespace terrace::serve::api {

struct ReadableRow {
  FieldRow row;
  // kHonoured: takes the value, which is not null. Errors as of the readers in json_text.h, or any other code, which is
  // then told as it is.
  Status (*read)(const Json& value, Ask& ask, const Context& context) = nullptr;
  // kNeutral: a JSON array of the values that are taken.
  std::string_view neutral = {};
};

std::span<const ReadableRow> sampling_rows();  // how tokens are chosen
std::span<const ReadableRow> answer_rows();    // what comes back, and where it is computed
std::span<const ReadableRow> text_rows();      // prompts, messages, tools
std::span<const ReadableRow> accepted_rows();  // what asks for no behaviour, and what is refused

}  // namespace terrace::serve::api
