// A row of the field table with what reads it. The table's parts stand in fields_*.cpp.
#pragma once

#include <cstdint>
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

// Groups of routes.
inline constexpr std::uint32_t kLlamaFields = kOnChat | kOnText | kOnCompletion;  // where llama-server's fields stand
inline constexpr std::uint32_t kAnthropicFields = kOnMessages | kOnCountTokens;
inline constexpr std::uint32_t kGenerating = kLlamaFields | kOnResponses | kOnMessages;

// Rows of each kind, for the tables.
constexpr ReadableRow honoured(std::string_view name, std::uint32_t routes, auto read, std::string_view note) {
  return {{name, routes, FieldKind::kHonoured, note}, read};
}
constexpr ReadableRow accepted(std::string_view name, std::uint32_t routes, std::string_view note) {
  return {{name, routes, FieldKind::kAccepted, note}};
}
constexpr ReadableRow neutral(std::string_view name, std::uint32_t routes, std::string_view values) {
  return {{name, routes, FieldKind::kNeutral, values}, nullptr, values};
}
constexpr ReadableRow refused(std::string_view name, std::uint32_t routes, std::string_view why) {
  return {{name, routes, FieldKind::kRefused, why}};
}

std::span<const ReadableRow> sampling_rows();  // how tokens are chosen
std::span<const ReadableRow> answer_rows();    // what comes back, and where it is computed
std::span<const ReadableRow> text_rows();      // prompts, messages, tools
std::span<const ReadableRow> accepted_rows();  // what asks for no behaviour, and what is refused

}  // namespace terrace::serve::api
