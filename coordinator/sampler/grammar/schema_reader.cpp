// JSON text to Schema. The only file of the folder that knows the JSON library.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "common/json/read_json.h"
#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/grammar/schema.h"

namespace terrace::sampler::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSchemas = 20'000;
constexpr std::size_t kMaxJsonDepth = 256;

// A name as a step of a JSON pointer (RFC 6901).
std::string pointer_step(std::string_view name) {
  std::string step = "/";
  for (const char c : name) {
    if (c == '~')
      step += "~0";
    else if (c == '/')
      step += "~1";
    else
      step += c;
  }
  return step;
}

Result<Json> parse_json(std::string_view text) {
  JsonFault fault;
  auto json = read_json<Json>(text, {.depth = kMaxJsonDepth, .keys = kMaxSchemas}, &fault);
  if (json.ok()) return json;
  return invalid("", fault.is_json ? fault.why : fmt::format("it is not JSON: {}", fault.why));
}

std::uint8_t type_bit(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNullType;
    case Json::value_t::boolean:
      return kBooleanType;
    case Json::value_t::string:
      return kStringType;
    case Json::value_t::array:
      return kArrayType;
    case Json::value_t::object:
      return kObjectType;
    case Json::value_t::number_float:
      // 1.0 is an integer to JSON Schema.
      return value.get<double>() == std::floor(value.get<double>()) ? kIntegerType : kFractionType;
    default:
      return kIntegerType;
  }
}

const std::unordered_map<std::string_view, std::uint8_t>& type_names() {
  static const std::unordered_map<std::string_view, std::uint8_t> names = {
      {"null", kNullType},     {"boolean", kBooleanType}, {"integer", kIntegerType}, {"number", kNumberTypes},
      {"string", kStringType}, {"array", kArrayType},     {"object", kObjectType}};
  return names;
}

// From JSON's own notation of a finite number.
std::optional<Decimal> to_decimal(const Json& value) {
  constexpr int kMaxShift = 40;
  std::string text = value.dump();
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.is_negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::atoi(text.c_str() + e + 1);
    text.resize(e);
  }
  if (std::abs(exponent) > kMaxShift) return std::nullopt;
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point) + (point < text.size() ? text.substr(point + 1) : "");
  int whole_digits = static_cast<int>(point) + exponent;
  if (whole_digits < 1) {
    digits.insert(0, static_cast<std::size_t>(1 - whole_digits), '0');
    whole_digits = 1;
  }
  if (static_cast<int>(digits.size()) < whole_digits) digits.resize(static_cast<std::size_t>(whole_digits), '0');
  decimal.whole = digits.substr(0, static_cast<std::size_t>(whole_digits));
  decimal.fraction = digits.substr(static_cast<std::size_t>(whole_digits));
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size() - 1));
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.whole == "0" && decimal.fraction.empty()) decimal.is_negative = false;
  return decimal;
}

// The same text for equal values: object members by name, 1.0 as 1.
std::string equality_key(const Json& value) {
  if (value.is_number_float()) {
    const std::optional<Decimal> d = to_decimal(value);
    if (!d) return value.dump();
    return (d->is_negative ? "-" : "") + d->whole + (d->fraction.empty() ? "" : "." + d->fraction);
  }
  if (value.is_array()) {
    std::string key = "[";
    for (const Json& element : value) key += equality_key(element) + ",";
    return key + "]";
  }
  if (!value.is_object()) return value.dump();
  std::map<std::string, std::string> members;
  for (const auto& [name, member] : value.items()) members[name] = equality_key(member);
  std::string key = "{";
  for (const auto& [name, member] : members) key += json_quoted(name) + ":" + member + ",";
  return key + "}";
}

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  Result<SchemaDocument> read() {
    SchemaDocument document;
    references_.push_back("#");
    while (!references_.empty()) {
      const std::string pointer = std::move(references_.front());
      references_.pop_front();
      if (document.contains(pointer)) continue;
      const Json* const place = find(pointer);
      if (place == nullptr) return invalid(pointer, "a $ref leads here, and nothing is here");
      TERRACE_ASSIGN_OR_RETURN(document[pointer], read_schema_at(*place, pointer, 0));
    }
    return document;
  }

 private:
  using Handler = Status (Reader::*)(const Json& value, const std::string& where, std::size_t depth, Schema& schema);
  enum class Group : std::uint8_t { kGeneral, kObject, kArray, kString, kNumber };
  struct Keyword {
    Handler read;
    Group group;
  };

  static const std::unordered_map<std::string_view, Keyword>& keywords();
  static bool is_annotation(std::string_view name);

  const Json* find(const std::string& pointer) const {
    try {
      const Json::json_pointer path(pointer.substr(1));
      return json_.contains(path) ? &json_.at(path) : nullptr;
    } catch (const nlohmann::json::exception&) {
      return nullptr;
    }
  }

  Result<SchemaPointer> read_schema_at(const Json& json, const std::string& where, std::size_t depth) {
    if (++n_schemas_ > kMaxSchemas) return invalid(where, fmt::format("there are more than {} schemas", kMaxSchemas));
    if (depth > Grammar::kMaxNesting)
      return invalid(where, fmt::format("schemas are nested deeper than {}", Grammar::kMaxNesting));
    Schema schema;
    schema.where = where;
    if (json.is_boolean()) {
      schema.is_never = !json.get<bool>();
      return std::make_shared<const Schema>(std::move(schema));
    }
    if (!json.is_object()) return invalid(where, "a schema is an object, true or false");
    for (const auto& [name, value] : json.items()) TERRACE_RETURN_IF_ERROR(read_keyword(name, value, depth, schema));
    TERRACE_RETURN_IF_ERROR(finish(json, schema));
    return std::make_shared<const Schema>(std::move(schema));
  }

  Status read_keyword(const std::string& name, const Json& value, std::size_t depth, Schema& schema) {
    if (is_annotation(name)) return {};
    const std::string where = schema.where + pointer_step(name);
    if (name == "$id") {
      // Elsewhere it would change what the references below it mean.
      return schema.where == "#" ? Status() : unsupported(where, "it cannot be held but at the top");
    }
    const auto known = keywords().find(name);
    if (known == keywords().end()) return unsupported(where, "this keyword cannot be held");
    TERRACE_RETURN_IF_ERROR((this->*known->second.read)(value, where, depth, schema));
    schema.keywords.push_back(name);
    schema.has_object_keyword |= known->second.group == Group::kObject;
    schema.has_array_keyword |= known->second.group == Group::kArray;
    schema.has_string_keyword |= known->second.group == Group::kString;
    schema.has_number_keyword |= known->second.group == Group::kNumber;
    return {};
  }

  // What depends on several keywords.
  static Status finish(const Json& json, Schema& schema) {
    if (!schema.reference.empty() && schema.keywords.size() > 1)
      return unsupported(schema.where + "/$ref", "other keywords beside it cannot be held: put it into allOf");
    if (json.contains("nullable") && json["nullable"].get<bool>()) {
      if (!json.contains("type"))
        return unsupported(schema.where + "/nullable",
                           "without type beside it it cannot be held: write anyOf with null");
      schema.types |= kNullType;
    }
    if (schema.constants) {
      for (const std::string& name : schema.keywords)
        if (name != "enum" && name != "const" && name != "type" && name != "nullable")
          return unsupported(schema.where + pointer_step(name), "beside enum or const it cannot be held");
      std::erase_if(*schema.constants, [&](const Constant& constant) { return (constant.type & schema.types) == 0; });
    }
    return {};
  }

  // ---- one keyword each ---------------------------------------------------------------------------------------------
  Status read_reference(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    if (!value.is_string()) return invalid(where, "it must be a string");
    const auto& pointer = value.get_ref<const std::string&>();
    if (pointer != "#" && !pointer.starts_with("#/"))
      return unsupported(where, "only references into this schema (#, #/$defs/name) can be followed");
    references_.push_back(pointer);
    schema.reference = pointer;
    return {};
  }

  Status read_type(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    const Json list = value.is_array() ? value : Json::array({value});
    schema.types = 0;
    for (const Json& name : list) {
      const auto type = name.is_string() ? type_names().find(name.get_ref<const std::string&>()) : type_names().end();
      if (type == type_names().end())
        return invalid(where, "it must be null, boolean, integer, number, string, array, object or a list of these");
      schema.types |= type->second;
    }
    return list.empty() ? invalid(where, "the list of types is empty") : Status();
  }

  Status read_nullable(const Json& value, const std::string& where, std::size_t, Schema&) {
    return value.is_boolean() ? Status() : invalid(where, "it must be true or false");
  }

  static Constant constant(const Json& value) { return {type_bit(value), value.dump(), equality_key(value)}; }

  static void keep_equal(Schema& schema, std::vector<Constant> constants) {
    if (schema.constants)
      std::erase_if(constants, [&](const Constant& c) {
        return std::ranges::find(*schema.constants, c.key, &Constant::key) == schema.constants->end();
      });
    schema.constants = std::move(constants);
  }

  Status read_enum(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    if (!value.is_array() || value.empty()) return invalid(where, "it must be a list of at least one value");
    std::vector<Constant> constants;
    for (const Json& one : value) constants.push_back(constant(one));
    keep_equal(schema, std::move(constants));
    return {};
  }

  Status read_const(const Json& value, const std::string&, std::size_t, Schema& schema) {
    keep_equal(schema, {constant(value)});
    return {};
  }

  Status read_properties(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    if (!value.is_object()) return invalid(where, "it must be an object of schemas");
    for (const auto& [name, property] : value.items()) {
      TERRACE_ASSIGN_OR_RETURN(SchemaPointer read, read_schema_at(property, where + pointer_step(name), depth + 1));
      schema.properties.push_back({name, std::move(read)});
    }
    return {};
  }

  Status read_required(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    if (!value.is_array()) return invalid(where, "it must be a list of names");
    for (const Json& name : value) {
      if (!name.is_string()) return invalid(where, "it must be a list of names");
      if (std::ranges::find(schema.required, name.get<std::string>()) == schema.required.end())
        schema.required.push_back(name.get<std::string>());
    }
    return {};
  }

  Status read_additional(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    TERRACE_ASSIGN_OR_RETURN(schema.additional, read_schema_at(value, where, depth + 1));
    return {};
  }

  Status read_items(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    if (value.is_array()) return unsupported(where, "a list of schemas is an old form: write prefixItems");
    TERRACE_ASSIGN_OR_RETURN(schema.items, read_schema_at(value, where, depth + 1));
    return {};
  }

  Result<std::vector<SchemaPointer>> read_list(const Json& value, const std::string& where, std::size_t depth) {
    if (!value.is_array() || value.empty()) return invalid(where, "it must be a list of at least one schema");
    std::vector<SchemaPointer> list;
    for (std::size_t i = 0; i < value.size(); ++i) {
      TERRACE_ASSIGN_OR_RETURN(SchemaPointer read, read_schema_at(value[i], fmt::format("{}/{}", where, i), depth + 1));
      list.push_back(std::move(read));
    }
    return list;
  }

  Status read_prefix_items(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    constexpr std::size_t kMaxPrefixItems = 256;
    TERRACE_ASSIGN_OR_RETURN(schema.prefix_items, read_list(value, where, depth));
    if (schema.prefix_items.size() <= kMaxPrefixItems) return {};
    return invalid(where,
                   fmt::format("it has {} schemas; allowed are {}", schema.prefix_items.size(), kMaxPrefixItems));
  }

  Status read_all_of(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    TERRACE_ASSIGN_OR_RETURN(schema.all_of, read_list(value, where, depth));
    return {};
  }
  Status read_any_of(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    TERRACE_ASSIGN_OR_RETURN(std::vector<SchemaPointer> list, read_list(value, where, depth));
    schema.any_of.push_back(std::move(list));
    return {};
  }
  Status read_one_of(const Json& value, const std::string& where, std::size_t depth, Schema& schema) {
    TERRACE_ASSIGN_OR_RETURN(std::vector<SchemaPointer> list, read_list(value, where, depth));
    schema.one_of.push_back(std::move(list));
    return {};
  }

  template <std::optional<std::uint32_t> Schema::*kField>
  Status read_count(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    const bool is_count = value.is_number() && value.get<double>() >= 0 && type_bit(value) == kIntegerType;
    if (!is_count) return invalid(where, "it must be a whole number, 0 or more");
    if (value.get<double>() > Grammar::kMaxRepetition)
      return invalid(where, fmt::format("it is {}; allowed is at most {}", value.dump(), Grammar::kMaxRepetition));
    schema.*kField = static_cast<std::uint32_t>(value.get<double>());
    return {};
  }

  template <std::optional<std::string> Schema::*kField>
  Status read_text(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    if (!value.is_string()) return invalid(where, "it must be a string");
    schema.*kField = value.get<std::string>();
    return {};
  }

  template <bool kIsMinimum, bool kIsExclusive>
  Status read_bound(const Json& value, const std::string& where, std::size_t, Schema& schema) {
    if (value.is_boolean()) return unsupported(where, "true or false is an old form: write the number here");
    if (!value.is_number()) return invalid(where, "it must be a number");
    const std::optional<Decimal> decimal = to_decimal(value);
    if (!decimal) return unsupported(where, "its exponent is beyond 40");
    std::optional<Bound>& bound = kIsMinimum ? schema.minimum : schema.maximum;
    const Bound found{*decimal, kIsExclusive};
    if (!bound) {
      bound = found;
      return {};
    }
    const int order = compare(found.value, bound->value) * (kIsMinimum ? 1 : -1);
    if (order > 0 || (order == 0 && kIsExclusive)) bound = found;
    return {};
  }

  Status read_unique_items(const Json& value, const std::string& where, std::size_t, Schema&) {
    if (value.is_boolean() && !value.get<bool>()) return {};
    return unsupported(where, "that items differ cannot be held");
  }

  const Json& json_;
  std::deque<std::string> references_;  // to be read
  std::size_t n_schemas_ = 0;
};

const std::unordered_map<std::string_view, Reader::Keyword>& Reader::keywords() {
  using S = Schema;
  static const std::unordered_map<std::string_view, Keyword> table = {
      {"$ref", {&Reader::read_reference, Group::kGeneral}},
      {"type", {&Reader::read_type, Group::kGeneral}},
      {"nullable", {&Reader::read_nullable, Group::kGeneral}},
      {"enum", {&Reader::read_enum, Group::kGeneral}},
      {"const", {&Reader::read_const, Group::kGeneral}},
      {"allOf", {&Reader::read_all_of, Group::kGeneral}},
      {"anyOf", {&Reader::read_any_of, Group::kGeneral}},
      {"oneOf", {&Reader::read_one_of, Group::kGeneral}},
      {"properties", {&Reader::read_properties, Group::kObject}},
      {"required", {&Reader::read_required, Group::kObject}},
      {"additionalProperties", {&Reader::read_additional, Group::kObject}},
      {"items", {&Reader::read_items, Group::kArray}},
      {"prefixItems", {&Reader::read_prefix_items, Group::kArray}},
      {"minItems", {&Reader::read_count<&S::min_items>, Group::kArray}},
      {"maxItems", {&Reader::read_count<&S::max_items>, Group::kArray}},
      {"uniqueItems", {&Reader::read_unique_items, Group::kArray}},
      {"minLength", {&Reader::read_count<&S::min_length>, Group::kString}},
      {"maxLength", {&Reader::read_count<&S::max_length>, Group::kString}},
      {"pattern", {&Reader::read_text<&S::pattern>, Group::kString}},
      {"format", {&Reader::read_text<&S::format>, Group::kString}},
      {"minimum", {&Reader::read_bound<true, false>, Group::kNumber}},
      {"exclusiveMinimum", {&Reader::read_bound<true, true>, Group::kNumber}},
      {"maximum", {&Reader::read_bound<false, false>, Group::kNumber}},
      {"exclusiveMaximum", {&Reader::read_bound<false, true>, Group::kNumber}},
  };
  return table;
}

// Keywords that say nothing about which values are valid. What stands under $defs counts where a $ref leads to it.
bool Reader::is_annotation(std::string_view name) {
  constexpr std::string_view kNames[] = {"$schema",   "$comment", "$defs",      "definitions",
                                         "title",     "default",  "deprecated", "readOnly",
                                         "writeOnly", "examples", "example",    "description"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

Error schema_error(ErrorCode code, std::string_view where, std::string_view why) {
  if (where.starts_with('#')) where.remove_prefix(1);
  return Error(code, where.empty() ? fmt::format("schema: {}", why) : fmt::format("schema, {}: {}", where, why));
}

std::string json_quoted(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<SchemaDocument> read_schema(std::string_view text) {
  if (text.size() > Grammar::kMaxTextBytes)
    return invalid("", fmt::format("it has {} bytes; allowed are {}", text.size(), Grammar::kMaxTextBytes));
  TERRACE_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  return Reader(json).read();
}

}  // namespace terrace::sampler::grammar
