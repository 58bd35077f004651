// The one table of request fields: what each JSON route does with each top-level field. What is not in it is refused
// with a suggestion; what is in it is honoured, accepted, or refused by name. Never silence.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace terrace::serve::api {

// Bits: the routes that know a field.
enum RouteBit : std::uint32_t {
  kOnChat = 1,          // /v1/chat/completions
  kOnText = 2,          // /v1/completions
  kOnCompletion = 4,    // /completion, /completions
  kOnResponses = 8,     // /v1/responses
  kOnMessages = 16,     // /v1/messages
  kOnCountTokens = 32,  // /v1/messages/count_tokens
  kOnTokenize = 64,
  kOnDetokenize = 128,
  kOnApplyTemplate = 256,
  kOnSlots = 512,  // /slots/ID
};

enum class FieldKind {
  kHonoured,  // does what it says, within the stated values
  kAccepted,  // asks for no behaviour: any value of the stated type, without effect
  kNeutral,   // only the value that changes nothing is taken; any other is a 400 that names it
  kRefused,   // null is taken; any value is a 400 that names it
};

struct FieldRow {
  std::string_view name;
  std::uint32_t routes;
  FieldKind kind;
  std::string_view note;  // for docs/http.md and refusals: the values taken, or why not
};

// Every row, by name; a name may stand twice where routes read it differently.
std::span<const FieldRow> field_rows();

}  // namespace terrace::serve::api
