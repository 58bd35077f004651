// allOf by merging, anyOf by multiplying out, oneOf as anyOf where no value can be valid against two branches.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/sampler/grammar/schema.h"

namespace terrace::sampler::grammar {
namespace {

constexpr std::size_t kMaxDepth = 32;      // of references and combinations within each other
constexpr std::size_t kMaxBranches = 512;  // of one schema
constexpr std::size_t kMaxMerged = 20'000;

bool says_nothing(const Schema& s) { return !s.is_never && s.reference.empty() && s.keywords.empty(); }

const Property* find_property(const Schema& s, std::string_view name) {
  const auto found = std::ranges::find(s.properties, name, &Property::name);
  return found == s.properties.end() ? nullptr : &*found;
}

bool requires_property(const Schema& s, std::string_view name) {
  return std::ranges::find(s.required, name) != s.required.end();
}

// Whether a value that is written for `s` can have a member of this name.
bool can_have(const Schema& s, std::string_view name) {
  if (find_property(s, name) != nullptr || requires_property(s, name)) return true;
  return s.additional ? !s.additional->is_never : s.properties.empty();
}

template <class T>
Status merge_equal(std::optional<T>& a, const std::optional<T>& b, const Schema& where, std::string_view keyword) {
  if (!b) return {};
  if (a && *a != *b)
    return unsupported(where.where, fmt::format("two different values of {} cannot be held together", keyword));
  a = b;
  return {};
}

void take_larger(std::optional<std::uint32_t>& a, const std::optional<std::uint32_t>& b) {
  if (b) a = std::max(a.value_or(0), *b);
}
void take_smaller(std::optional<std::uint32_t>& a, const std::optional<std::uint32_t>& b) {
  if (b) a = std::min(a.value_or(*b), *b);
}

// `sign` 1: the larger of two minima; -1: the smaller of two maxima.
void take_narrower(std::optional<Bound>& a, const std::optional<Bound>& b, int sign) {
  if (!b) return;
  const int order = a ? compare(b->value, a->value) * sign : 1;
  if (order > 0 || (order == 0 && b->is_exclusive)) a = b;
}

SchemaPointer both(const SchemaPointer& a, const SchemaPointer& b) {
  if (a == b) return a;
  Schema schema;
  schema.where = a->where;
  schema.all_of = {a, b};
  schema.keywords = {"allOf"};
  return std::make_shared<const Schema>(std::move(schema));
}

// additionalProperties speaks of the names that stand beside it: it would forbid a property that only the other side
// has.
Status merge_additional(Schema& a, const Schema& b) {
  const auto forbids = [](const Schema& s, const Schema& other) {
    return s.additional && !says_nothing(*s.additional) &&
           std::ranges::any_of(other.properties,
                               [&](const Property& p) { return find_property(s, p.name) == nullptr; });
  };
  if (forbids(a, b) || forbids(b, a))
    return unsupported(b.where, "additionalProperties beside other properties in another part cannot be held");
  if (a.additional && b.additional)
    a.additional = both(a.additional, b.additional);
  else if (b.additional)
    a.additional = b.additional;
  return {};
}

Status merge_objects(Schema& a, const Schema& b) {
  TERRACE_RETURN_IF_ERROR(merge_additional(a, b));
  for (const Property& property : b.properties) {
    const auto known = std::ranges::find(a.properties, property.name, &Property::name);
    if (known == a.properties.end())
      a.properties.push_back(property);
    else
      known->schema = both(known->schema, property.schema);
  }
  for (const std::string& name : b.required)
    if (!requires_property(a, name)) a.required.push_back(name);
  return {};
}

Status merge_arrays(Schema& a, const Schema& b) {
  if (!a.prefix_items.empty() || !b.prefix_items.empty()) {
    if (a.has_array_keyword && b.has_array_keyword && a.prefix_items != b.prefix_items)
      return unsupported(b.where,
                         "prefixItems in one part of allOf beside another part that speaks of arrays cannot be held");
    if (a.prefix_items.empty()) a.prefix_items = b.prefix_items;
  }
  if (b.items) a.items = a.items ? both(a.items, b.items) : b.items;
  take_larger(a.min_items, b.min_items);
  take_smaller(a.max_items, b.max_items);
  return {};
}

Status merge_constants(Schema& a, const Schema& b) {
  if (!a.constants && !b.constants) return {};
  const auto says_more = [](const Schema& s) {
    return s.has_object_keyword || s.has_array_keyword || s.has_string_keyword || s.has_number_keyword;
  };
  if (says_more(a) || says_more(b))
    return unsupported(b.where, "enum or const beside keywords other than type cannot be held");
  if (!a.constants) {
    a.constants = b.constants;
  } else if (b.constants) {
    std::erase_if(*a.constants, [&](const Constant& constant) {
      return std::ranges::find(*b.constants, constant.key, &Constant::key) == b.constants->end();
    });
  }
  std::erase_if(*a.constants, [&](const Constant& constant) { return (constant.type & a.types & b.types) == 0; });
  return {};
}

// `a` and `b` have no combinations and are no references.
Result<Schema> merge(Schema a, const Schema& b) {
  a.is_never |= b.is_never;
  TERRACE_RETURN_IF_ERROR(merge_constants(a, b));
  a.types &= b.types;
  TERRACE_RETURN_IF_ERROR(merge_objects(a, b));
  TERRACE_RETURN_IF_ERROR(merge_arrays(a, b));
  take_larger(a.min_length, b.min_length);
  take_smaller(a.max_length, b.max_length);
  TERRACE_RETURN_IF_ERROR(merge_equal(a.pattern, b.pattern, b, "pattern"));
  TERRACE_RETURN_IF_ERROR(merge_equal(a.format, b.format, b, "format"));
  take_narrower(a.minimum, b.minimum, 1);
  take_narrower(a.maximum, b.maximum, -1);
  a.keywords.insert(a.keywords.end(), b.keywords.begin(), b.keywords.end());
  a.has_object_keyword |= b.has_object_keyword;
  a.has_array_keyword |= b.has_array_keyword;
  a.has_string_keyword |= b.has_string_keyword;
  a.has_number_keyword |= b.has_number_keyword;
  return a;
}

bool constants_differ(const Schema& a, const Schema& b) {
  if (!a.constants || !b.constants) return false;
  return std::ranges::none_of(*a.constants, [&](const Constant& constant) {
    return std::ranges::find(*b.constants, constant.key, &Constant::key) != b.constants->end();
  });
}

// The types of values that are written: without `type`, keywords of a type imply it (json_schema.cpp).
std::uint8_t types_of(const Schema& s) {
  if (!s.constants) return written_types(s);
  std::uint8_t types = 0;
  for (const Constant& constant : *s.constants) types |= constant.type;
  return types;
}

}  // namespace

std::uint8_t written_types(const Schema& s) {
  if (s.types != kAllTypes || s.constants) return s.types;
  std::uint8_t implied = 0;
  if (s.has_object_keyword) implied |= kObjectType;
  if (s.has_array_keyword) implied |= kArrayType;
  if (s.has_string_keyword) implied |= kStringType;
  if (s.has_number_keyword) implied |= kNumberTypes;
  return implied != 0 ? implied : kAllTypes;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  int magnitude = order(a.whole.size(), b.whole.size());
  if (magnitude == 0) magnitude = order(a.whole, b.whole);
  if (magnitude == 0) magnitude = order(a.fraction, b.fraction);
  return a.is_negative ? -magnitude : magnitude;
}

Result<std::vector<Schema>> SchemaFlattener::flatten(const Schema& schema) { return flatten(schema, 0); }

Result<SchemaFlattener::Branches> SchemaFlattener::flatten(const Schema& schema, std::size_t depth) {
  if (depth > kMaxDepth)
    return invalid(schema.where, fmt::format("combinations or references lead into each other more than {} times, or "
                                             "to themselves",
                                             kMaxDepth));
  Schema own = schema;
  own.all_of.clear();
  own.any_of.clear();
  own.one_of.clear();
  std::erase_if(own.keywords, [](const std::string& k) { return k == "allOf" || k == "anyOf" || k == "oneOf"; });
  Branches branches;
  branches.push_back(std::move(own));
  for (const SchemaPointer& part : schema.all_of) {
    TERRACE_ASSIGN_OR_RETURN(const Branches more, flatten(*part, depth + 1));
    TERRACE_ASSIGN_OR_RETURN(branches, cross(branches, more, depth));
  }
  for (const auto& group : schema.any_of) {
    TERRACE_ASSIGN_OR_RETURN(const Branches more, union_of(group, depth));
    TERRACE_ASSIGN_OR_RETURN(branches, cross(branches, more, depth));
  }
  for (const auto& group : schema.one_of) {
    TERRACE_RETURN_IF_ERROR(check_disjoint(group, schema.where, depth));
    TERRACE_ASSIGN_OR_RETURN(const Branches more, union_of(group, depth));
    TERRACE_ASSIGN_OR_RETURN(branches, cross(branches, more, depth));
  }
  return branches;
}

// With each reference followed, so that its keywords can be looked at.
Result<SchemaFlattener::Branches> SchemaFlattener::resolved(Branches branches, std::size_t depth) {
  Branches all;
  for (Schema& branch : branches) {
    if (branch.reference.empty()) {
      all.push_back(std::move(branch));
      continue;
    }
    TERRACE_ASSIGN_OR_RETURN(Branches target, flatten(*document_.find(branch.reference)->second, depth + 1));
    TERRACE_ASSIGN_OR_RETURN(target, resolved(std::move(target), depth + 1));
    std::ranges::move(target, std::back_inserter(all));
  }
  return all;
}

// What is valid against one of `a` and one of `b`.
Result<SchemaFlattener::Branches> SchemaFlattener::cross(const Branches& a, const Branches& b, std::size_t depth) {
  if (a.size() == 1 && says_nothing(a.front())) return b;
  if (b.size() == 1 && says_nothing(b.front())) return a;
  TERRACE_ASSIGN_OR_RETURN(const Branches left, resolved(a, depth));
  TERRACE_ASSIGN_OR_RETURN(const Branches right, resolved(b, depth));
  if (left.size() * right.size() > kMaxBranches)
    return invalid(a.front().where,
                   fmt::format("multiplying out its combinations gives more than {} branches", kMaxBranches));
  Branches all;
  for (const Schema& one : left) {
    for (const Schema& other : right) {
      if (++n_merged_ > kMaxMerged)
        return invalid(one.where, fmt::format("combinations give more than {} schemas in all", kMaxMerged));
      TERRACE_ASSIGN_OR_RETURN(Schema merged, merge(one, other));
      all.push_back(std::move(merged));
    }
  }
  return all;
}

Result<SchemaFlattener::Branches> SchemaFlattener::union_of(const std::vector<SchemaPointer>& schemas,
                                                            std::size_t depth) {
  Branches all;
  for (const SchemaPointer& schema : schemas) {
    TERRACE_ASSIGN_OR_RETURN(Branches branches, flatten(*schema, depth + 1));
    std::ranges::move(branches, std::back_inserter(all));
    if (all.size() > kMaxBranches)
      return invalid(schema->where, fmt::format("its alternatives are more than {}", kMaxBranches));
  }
  return all;
}

// oneOf: exactly one may hold. Written for one branch, a value must not be valid against another.
Status SchemaFlattener::check_disjoint(const std::vector<SchemaPointer>& schemas, std::string_view where,
                                       std::size_t depth) {
  std::vector<Branches> all;
  for (const SchemaPointer& schema : schemas) {
    TERRACE_ASSIGN_OR_RETURN(Branches branches, flatten(*schema, depth + 1));
    TERRACE_ASSIGN_OR_RETURN(branches, resolved(std::move(branches), depth));
    all.push_back(std::move(branches));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (i == j) continue;
      for (const Schema& a : all[i]) {
        for (const Schema& b : all[j]) {
          if (++n_merged_ > kMaxMerged)
            return invalid(where, fmt::format("combinations give more than {} schemas in all", kMaxMerged));
          TERRACE_ASSIGN_OR_RETURN(const bool apart, is_never_valid(a, b, depth + 1));
          if (!apart)
            return unsupported(
                std::string(where) + "/oneOf",
                fmt::format("a value may be valid against branches {} and {}: write anyOf, or give each a "
                            "required property with a const of its own",
                            i, j));
        }
      }
    }
  }
  return {};
}

Result<bool> SchemaFlattener::is_never_valid(const Schema& a, const Schema& b, std::size_t depth) {
  if (a.is_never || b.is_never) return true;
  if (depth > kMaxDepth) return false;
  if ((types_of(a) & (b.constants ? types_of(b) : b.types)) == 0 || constants_differ(a, b)) return true;
  if (types_of(a) != kObjectType || a.constants || b.constants) return false;
  return objects_never_valid(a, b, depth);
}

Result<bool> SchemaFlattener::objects_never_valid(const Schema& a, const Schema& b, std::size_t depth) {
  for (const std::string& name : b.required)
    if (!can_have(a, name)) return true;
  for (const std::string& name : a.required) {
    const Property* in_a = find_property(a, name);
    const Property* in_b = find_property(b, name);
    if (in_b == nullptr && b.additional && b.additional->is_never) return true;
    if (in_a == nullptr || in_b == nullptr) continue;
    TERRACE_ASSIGN_OR_RETURN(Branches left, flatten(*in_a->schema, depth + 1));
    TERRACE_ASSIGN_OR_RETURN(left, resolved(std::move(left), depth));
    TERRACE_ASSIGN_OR_RETURN(Branches right, flatten(*in_b->schema, depth + 1));
    TERRACE_ASSIGN_OR_RETURN(right, resolved(std::move(right), depth));
    bool apart = true;
    for (const Schema& x : left) {
      for (const Schema& y : right) {
        TERRACE_ASSIGN_OR_RETURN(const bool is_apart, is_never_valid(x, y, depth + 1));
        apart = apart && is_apart;
      }
    }
    if (apart) return true;
  }
  return false;
}

}  // namespace terrace::sampler::grammar
