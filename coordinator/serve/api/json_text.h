// JSON from clients: strict, bounded, and errors that name the field. And the small readers that every field is read
// by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace terrace::serve::api {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kMaxJsonDepth = 100;         // arrays and objects inside one another
inline constexpr std::size_t kMaxJsonValues = 1'000'000;  // of a body: 16 bytes and more each
// Keys of one object: they are kept in their order and looked up one by one.
inline constexpr std::size_t kMaxJsonKeys = 1024;
inline constexpr std::uint64_t kMaxWhole = (1ULL << 63) - 1;

struct ParsedBody {
  std::shared_ptr<const Json> object;  // null: see error
  std::string field;                   // the top-level field in which the error stands; empty: none
  std::string error;
};
// Refused: what is no JSON (NaN and Infinity among it), no object, not UTF-8, too deep or with too many values or keys,
// a number that no double holds, a key that stands twice in one object.
ParsedBody parse_body(std::string_view body);

// JSON text. Strings of ours are UTF-8; what is not becomes U+FFFD.
std::string dump(const Json& value);

// Appends `text` as a JSON string, as dump() writes it.
void append_json(std::string& out, std::string_view text);

// A value as an error shows it: short, whatever was sent.
std::string shown(const Json& value);

// The readers' errors (kInvalidArgument) say what was found and what is allowed, and not yet the field's name.
Error must_be(std::string_view allowed, const Json& found);
Result<bool> read_bool(const Json& value);
Result<std::int64_t> read_whole(const Json& value, std::int64_t low, std::int64_t high);
struct NumberRange {
  double low;
  double high;
  bool low_allowed = true;
};
Result<float> read_number(const Json& value, const NumberRange& range);
inline constexpr NumberRange kFiniteFloat{-double(std::numeric_limits<float>::max()),
                                          double(std::numeric_limits<float>::max())};
Result<std::string> read_string(const Json& value);
// One of `allowed`, all of which the error lists.
Result<std::string> read_choice(const Json& value, std::initializer_list<std::string_view> allowed);
// An object all of whose keys are among `allowed`; the error names another one, with a suggestion.
Status check_keys(const Json& value, std::initializer_list<std::string_view> allowed);

// object[key], or null where there is none or it is null.
const Json* find(const Json& object, std::string_view key);

}  // namespace terrace::serve::api
