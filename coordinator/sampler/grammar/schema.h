// A JSON schema as checked values. Private to the folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace terrace::sampler::grammar {

// Bits of a set of types. A value of type "integer" is one of type "number" too: "number" is both bits.
enum JsonTypes : std::uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // numbers that are written as no integer
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
};
inline constexpr std::uint8_t kNumberTypes = kIntegerType | kFractionType;
inline constexpr std::uint8_t kAllTypes = 127;

// A decimal number, exactly.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";  // digits, no leading zero but for "0"
  std::string fraction;     // digits, no trailing zero
};

struct Bound {
  Decimal value;
  bool is_exclusive = false;
};

// A value of enum or const.
struct Constant {
  std::uint8_t type = 0;  // one bit
  std::string text;       // as JSON, without white space
  std::string key;        // equal for equal values, however they were written
};

struct Schema;
using SchemaPointer = std::shared_ptr<const Schema>;

struct Property {
  std::string name;
  SchemaPointer schema;
};

struct Schema {
  std::string where;  // its place, as a JSON pointer

  bool is_never = false;  // the schema false
  std::string reference;  // $ref, as a JSON pointer beginning with #; then nothing below is set
  std::uint8_t types = kAllTypes;
  std::optional<std::vector<Constant>> constants;

  std::vector<Property> properties;  // in the schema's order
  std::vector<std::string> required;
  SchemaPointer additional;  // additionalProperties

  std::vector<SchemaPointer> prefix_items;
  SchemaPointer items;
  std::optional<std::uint32_t> min_items, max_items;

  std::optional<std::uint32_t> min_length, max_length;
  std::optional<std::string> pattern, format;

  std::optional<Bound> minimum, maximum;  // the narrower of the inclusive and the exclusive one

  std::vector<SchemaPointer> all_of;
  std::vector<std::vector<SchemaPointer>> any_of;  // one of each group
  std::vector<std::vector<SchemaPointer>> one_of;

  // The keywords that were given, but for $ref and annotations.
  std::vector<std::string> keywords;
  bool has_object_keyword = false;
  bool has_array_keyword = false;
  bool has_string_keyword = false;
  bool has_number_keyword = false;
};

// A whole document: its own schema under "#", and all that references lead to, by pointer.
using SchemaDocument = std::map<std::string, SchemaPointer, std::less<>>;

// Reads and checks a document; errors as Grammar::from_json_schema() has them.
Result<SchemaDocument> read_schema(std::string_view text);

// "schema, /properties/a: why". `where` is a pointer, with or without its #.
Error schema_error(ErrorCode code, std::string_view where, std::string_view why);
inline Error invalid(std::string_view where, std::string_view why) {
  return schema_error(ErrorCode::kInvalidArgument, where, why);
}
inline Error unsupported(std::string_view where, std::string_view why) {
  return schema_error(ErrorCode::kUnsupported, where, why);
}

// The types of the values that are written for a schema: without `type`, keywords that speak of a type imply it.
std::uint8_t written_types(const Schema& schema);

// A value is larger (1), equal (0), smaller (-1).
int compare(const Decimal& a, const Decimal& b);

// JSON text of a string: the shortest form, UTF-8 as it is.
std::string json_quoted(std::string_view text);

// ---- combinations ---------------------------------------------------------------------------------------------------

// Schemas without allOf, anyOf, oneOf, of which a value must be valid against one. A reference that stands alone stays
// one.
class SchemaFlattener {
 public:
  explicit SchemaFlattener(const SchemaDocument& document) : document_(document) {}

  // Errors: kUnsupported, schemas that cannot be merged or whose oneOf may overlap; kInvalidArgument, a limit, or a
  // reference that leads to itself.
  Result<std::vector<Schema>> flatten(const Schema& schema);

 private:
  using Branches = std::vector<Schema>;
  Result<Branches> resolved(Branches branches, std::size_t depth);
  Result<Branches> flatten(const Schema& schema, std::size_t depth);
  Result<Branches> cross(const Branches& a, const Branches& b, std::size_t depth);
  Result<Branches> union_of(const std::vector<SchemaPointer>& schemas, std::size_t depth);
  Status check_disjoint(const std::vector<SchemaPointer>& schemas, std::string_view where, std::size_t depth);
  // Whether no value that is written for `a` can be valid against `b`. False: it cannot be shown.
  Result<bool> is_never_valid(const Schema& a, const Schema& b, std::size_t depth);
  Result<bool> objects_never_valid(const Schema& a, const Schema& b, std::size_t depth);

  const SchemaDocument& document_;
  std::size_t n_merged_ = 0;
};

}  // namespace terrace::sampler::grammar
