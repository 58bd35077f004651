#include "coordinator/sampler/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/sampler/grammar/json_text.h"
#include "coordinator/sampler/grammar/number_range.h"
#include "coordinator/sampler/grammar/pattern.h"
#include "coordinator/sampler/grammar/schema.h"

namespace terrace::sampler::grammar {
namespace {

using Maybe = std::optional<Expression>;  // nothing: no value is valid

constexpr std::size_t kMaxCompiled = 50'000;   // schemas, each as often as it is used
constexpr std::size_t kMaxNameBytes = 200;     // of properties beside additionalProperties
constexpr std::size_t kMaxOtherNames = 1'000;  // properties beside additionalProperties

// The formats that can be held, as patterns: RFC 3339 (the years 1000 to 2999, no leap seconds) and RFC 9562.
#define TERRACE_DATE_                                                                                 \
  "(?:[12]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|(?:[12]\\d(?:0[48]|[2468][048]|[13579][26])|(?:12|16|20|24|28)00)-02-29)"
#define TERRACE_TIME_ "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
struct Format {
  std::string_view name;
  std::string_view pattern;
};
constexpr Format kFormats[] = {
    {"date", "^" TERRACE_DATE_ "$"},
    {"time", "^" TERRACE_TIME_ "$"},
    {"date-time", "^" TERRACE_DATE_ "T" TERRACE_TIME_ "$"},
    {"uuid", "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
};
#undef TERRACE_DATE_
#undef TERRACE_TIME_

class Compiler {
 public:
  explicit Compiler(const SchemaDocument& document) : document_(document), flattener_(document) {}

  Result<Rules> compile() {
    TERRACE_ASSIGN_OR_RETURN(const std::uint32_t root, reference_rule("#"));
    TERRACE_CHECK(root == 0, "the whole text is the first rule");
    while (!waiting_.empty()) {
      const auto [pointer, rule] = std::move(waiting_.back());
      waiting_.pop_back();
      TERRACE_ASSIGN_OR_RETURN(Maybe body, value(*document_.find(pointer)->second));
      if (!body) return error(ErrorCode::kInvalidArgument, pointer, "no value is valid against it");
      rules_[rule].body = std::move(*body);
    }
    return std::move(rules_);
  }

 private:
  static Error error(ErrorCode code, std::string_view where, std::string_view why) {
    return schema_error(code, where, why);
  }

  // ---- rules --------------------------------------------------------------------------------------------------------
  std::uint32_t new_rule(std::string_view where, Expression body) {
    rules_.push_back({schema_error(ErrorCode::kInternal, where, "its grammar").text(), std::move(body), true});
    return static_cast<std::uint32_t>(rules_.size() - 1);
  }

  Result<std::uint32_t> reference_rule(const std::string& pointer) {
    const auto [known, is_new] = references_.try_emplace(pointer, 0);
    if (is_new) {
      known->second = new_rule(pointer, {});
      waiting_.emplace_back(pointer, known->second);
    }
    return known->second;
  }

  // The rule for something that is the same wherever it stands: made once, so that its masks are shared.
  template <class Make>
  Expression shared(const std::string& name, Make make) {
    const auto known = shared_.find(name);
    if (known != shared_.end()) return rule_call(known->second);
    const std::uint32_t rule = new_rule("", {});
    shared_.emplace(name, rule);
    Expression body = make();  // may call this rule
    rules_[rule].body = std::move(body);
    return rule_call(rule);
  }

  Expression any_string() { return string_of(0, kUnlimited); }
  Expression string_of(std::uint32_t min, std::uint32_t max) {
    return shared(fmt::format("string {} {}", min, max), [&] { return string_text(min, max); });
  }
  Expression any_integer() {
    return shared("integer", [] { return integer_text(); });
  }
  Expression any_number() {
    return shared("number", [] { return number_text(); });
  }
  Expression any_value() {
    return shared("value", [&] {
      return alternatives(literal("null"), literal("true"), literal("false"), any_number(), any_string(), any_array(),
                          any_object());
    });
  }
  Expression any_array() {
    return shared("array", [&] { return bracketed("[", list(sequence(any_value(), gap()), 0, kUnlimited), "]"); });
  }
  Expression any_object() {
    return shared("object",
                  [&] { return bracketed("{", list(member(any_string(), any_value()), 0, kUnlimited), "}"); });
  }

  static Expression member(Expression name, Expression value) {
    return sequence(std::move(name), gap(), literal(":"), gap(), std::move(value), gap());
  }

  // `min` to `max` elements with commas between them.
  static Expression list(const Expression& element, std::uint32_t min, std::uint32_t max) {
    if (max == 0) return sequence();
    const std::uint32_t more = max == kUnlimited ? kUnlimited : max - 1;
    Expression all = sequence(element, repeat(sequence(comma(), element), min == 0 ? 0 : min - 1, more));
    return min == 0 ? repeat(std::move(all), 0, 1) : all;
  }

  // ---- schemas ------------------------------------------------------------------------------------------------------
  Result<Maybe> value(const Schema& schema) {
    if (++n_compiled_ > kMaxCompiled)
      return error(ErrorCode::kInvalidArgument, schema.where,
                   fmt::format("with all combinations it needs more than {} schemas", kMaxCompiled));
    TERRACE_ASSIGN_OR_RETURN(const std::vector<Schema> branches, flattener_.flatten(schema));
    Expression all;
    all.kind = Expression::Kind::kAlternatives;
    for (const Schema& branch : branches) TERRACE_RETURN_IF_ERROR(add_branch(branch, all));
    if (all.children.empty()) return Maybe();
    if (all.children.size() > 1) return Maybe(std::move(all));
    Expression only = std::move(all.children.front());
    return Maybe(std::move(only));
  }

  Status add_branch(const Schema& schema, Expression& all) {
    if (schema.is_never) return {};
    if (!schema.reference.empty()) {
      TERRACE_ASSIGN_OR_RETURN(const std::uint32_t rule, reference_rule(schema.reference));
      all.children.push_back(rule_call(rule));
      return {};
    }
    TERRACE_RETURN_IF_ERROR(check_format(schema));
    if (schema.constants) {
      for (const Constant& constant : *schema.constants) all.children.push_back(literal(constant.text));
      return {};
    }
    const std::uint8_t types = written_types(schema);
    if (types == kAllTypes) {
      all.children.push_back(any_value());
      return {};
    }
    if ((types & kNullType) != 0) all.children.push_back(literal("null"));
    if ((types & kBooleanType) != 0) {
      all.children.push_back(literal("true"));
      all.children.push_back(literal("false"));
    }
    const auto add = [&all](Result<Maybe> part) -> Status {
      if (!part.ok()) return part.error();
      if (*part) all.children.push_back(std::move(**part));
      return {};
    };
    if ((types & kNumberTypes) != 0) TERRACE_RETURN_IF_ERROR(add(number(schema, (types & kFractionType) != 0)));
    if ((types & kStringType) != 0) TERRACE_RETURN_IF_ERROR(add(string(schema)));
    if ((types & kArrayType) != 0) TERRACE_RETURN_IF_ERROR(add(array(schema)));
    if ((types & kObjectType) != 0) TERRACE_RETURN_IF_ERROR(add(object(schema)));
    return {};
  }

  // Null: it cannot be held.
  static const Format* find_format(const Schema& schema) {
    const auto* found = std::ranges::find(kFormats, *schema.format, &Format::name);
    return found == std::end(kFormats) ? nullptr : found;
  }

  // Whatever the type: "int32" means something to who wrote it.
  static Status check_format(const Schema& schema) {
    if (!schema.format || find_format(schema) != nullptr) return {};
    return error(ErrorCode::kUnsupported, schema.where + "/format",
                 fmt::format("\"{}\" cannot be held; date, time, date-time and uuid can", *schema.format));
  }

  Result<Maybe> number(const Schema& schema, bool with_fraction) {
    if (!schema.minimum && !schema.maximum) return Maybe(with_fraction ? any_number() : any_integer());
    if (!with_fraction) return integer_range(schema.minimum, schema.maximum);
    Result<Maybe> range = number_range(schema.minimum, schema.maximum);
    if (!range.ok()) return error(range.error().code(), bound_place(schema), range.error().text());
    return range;
  }

  static std::string bound_place(const Schema& schema) {
    for (const std::string& keyword : schema.keywords)
      if (keyword.ends_with("inimum") || keyword.ends_with("aximum")) return schema.where + "/" + keyword;
    return schema.where;
  }

  Result<Maybe> string(const Schema& schema) {
    const bool has_length = schema.min_length || schema.max_length;
    if (schema.pattern && (has_length || schema.format))
      return error(ErrorCode::kUnsupported, schema.where + "/pattern",
                   "beside minLength, maxLength or format it cannot be held: put the length into the pattern");
    if (schema.format && has_length)
      return error(ErrorCode::kUnsupported, schema.where + "/format",
                   "beside minLength or maxLength it cannot be held");
    if (schema.pattern) return pattern(*schema.pattern, schema.where + "/pattern");
    if (schema.format) return pattern(find_format(schema)->pattern, schema.where + "/format");
    const std::uint32_t min = schema.min_length.value_or(0);
    const std::uint32_t max = schema.max_length.value_or(kUnlimited);
    if (min > max) return Maybe();
    return Maybe(string_of(min, max));
  }

  Result<Maybe> pattern(std::string_view text, const std::string& where) {
    const std::string name = fmt::format("pattern {}", text);
    if (!shared_.contains(name)) {
      Result<Expression> inside = pattern_text(text);
      if (!inside.ok()) return error(inside.error().code(), where, inside.error().text());
      shared_[name] = new_rule(where, sequence(literal("\""), std::move(*inside), literal("\"")));
    }
    return Maybe(rule_call(shared_[name]));
  }

  // ---- arrays -------------------------------------------------------------------------------------------------------
  Result<Maybe> array(const Schema& schema) {
    const std::uint32_t min = schema.min_items.value_or(0);
    std::uint32_t max = schema.max_items.value_or(kUnlimited);
    const auto n_prefix = static_cast<std::uint32_t>(schema.prefix_items.size());
    TERRACE_ASSIGN_OR_RETURN(const Maybe item, items(schema, min > n_prefix));
    if (!item) max = std::min(max, n_prefix);
    std::vector<Expression> prefix;
    for (std::uint32_t i = 0; i < std::min(n_prefix, max); ++i) {
      TERRACE_ASSIGN_OR_RETURN(Maybe one, value(*schema.prefix_items[i]));
      if (one)
        prefix.push_back(sequence(std::move(*one), gap()));
      else
        max = i;
    }
    if (min > max) return Maybe();
    if (prefix.empty()) return Maybe(bracketed("[", item ? list(sequence(*item, gap()), min, max) : sequence(), "]"));
    return Maybe(bracketed("[", prefix_list(std::move(prefix), item, min, max), "]"));
  }

  // What comes behind prefixItems. Without `items` nothing does, but where minItems asks for more.
  Result<Maybe> items(const Schema& schema, bool is_needed) {
    if (schema.items) return value(*schema.items);
    if (schema.prefix_items.empty() || is_needed) return Maybe(any_value());
    return Maybe();
  }

  // From the end: each element may be the last once there are `min`.
  static Expression prefix_list(std::vector<Expression> prefix, const Maybe& item, std::uint32_t min,
                                std::uint32_t max) {
    const auto n = static_cast<std::uint32_t>(prefix.size());
    const auto minus_prefix = [n](std::uint32_t count) {
      return count == kUnlimited ? count : count - std::min(count, n);
    };
    Expression rest =
        item ? repeat(sequence(comma(), sequence(*item, gap())), minus_prefix(min), minus_prefix(max)) : sequence();
    for (std::uint32_t i = n; i-- > 0;) {
      rest = i == 0 ? sequence(std::move(prefix[i]), std::move(rest))
                    : sequence(comma(), std::move(prefix[i]), std::move(rest));
      if (min <= i) rest = repeat(std::move(rest), 0, 1);
    }
    return rest;
  }

  // ---- objects ------------------------------------------------------------------------------------------------------
  Result<Maybe> object(const Schema& schema) {
    if (schema.properties.empty() && schema.required.empty() && !schema.additional) return Maybe(any_object());
    Expression members;
    members.kind = Expression::Kind::kMembers;
    members.children.push_back(comma());
    std::vector<std::string> names;
    for (const Property& property : schema.properties) {
      const bool is_required = std::ranges::find(schema.required, property.name) != schema.required.end();
      TERRACE_ASSIGN_OR_RETURN(Maybe one, value(*property.schema));
      names.push_back(property.name);
      if (!one && is_required) return Maybe();
      if (one) add_member(members, literal(json_quoted(property.name)), std::move(*one), !is_required);
    }
    for (const std::string& name : schema.required) {
      if (std::ranges::find(names, name) != names.end()) continue;
      TERRACE_ASSIGN_OR_RETURN(Maybe one, additional(schema));
      names.push_back(name);
      if (!one) return Maybe();
      add_member(members, literal(json_quoted(name)), std::move(*one), false);
    }
    if (schema.additional || schema.properties.empty()) TERRACE_RETURN_IF_ERROR(add_others(schema, names, members));
    return Maybe(bracketed("{", std::move(members), "}"));
  }

  static void add_member(Expression& members, Expression name, Expression value, bool is_optional) {
    members.children.push_back(member(std::move(name), std::move(value)));
    members.children.back().optional = is_optional;
  }

  Result<Maybe> additional(const Schema& schema) {
    return schema.additional ? value(*schema.additional) : Result<Maybe>(Maybe(any_value()));
  }

  // Members with other names than those of `names`, behind them.
  Status add_others(const Schema& schema, const std::vector<std::string>& names, Expression& members) {
    TERRACE_ASSIGN_OR_RETURN(Maybe one, additional(schema));
    if (!one) return {};
    const bool too_long = std::ranges::any_of(names, [](const std::string& n) { return n.size() > kMaxNameBytes; });
    if (too_long || names.size() > kMaxOtherNames)
      return error(ErrorCode::kUnsupported, schema.where + "/additionalProperties",
                   fmt::format("beside more than {} properties, or names of more than {} bytes, it cannot be held",
                               kMaxOtherNames, kMaxNameBytes));
    const Expression name = names.empty() ? any_string() : rule_call(new_rule(schema.where, other_name(names)));
    Expression others = list(member(name, std::move(*one)), 1, kUnlimited);
    others.optional = true;
    members.children.push_back(std::move(others));
    return {};
  }

  const SchemaDocument& document_;
  SchemaFlattener flattener_;
  Rules rules_;
  std::map<std::string, std::uint32_t> references_;             // pointer -> rule
  std::vector<std::pair<std::string, std::uint32_t>> waiting_;  // references whose rule has no body yet
  std::map<std::string, std::uint32_t, std::less<>> shared_;    // what shared() made
  std::size_t n_compiled_ = 0;
};

}  // namespace

Result<Rules> rules_from_json_schema(std::string_view schema) {
  TERRACE_ASSIGN_OR_RETURN(const SchemaDocument document, read_schema(schema));
  return Compiler(document).compile();
}

}  // namespace terrace::sampler::grammar
