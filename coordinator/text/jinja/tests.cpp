// `value is ...`
#include <algorithm>
#include <span>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/unicode.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {
namespace {

using Arguments = CallArguments;

template <Kind kind>
bool is_kind(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("test", given, {});
  return value.is(kind);
}

template <bool wanted>
bool is_boolean_value(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("test", given, {});
  return value.is(Kind::kBoolean) && (value.integer() != 0) == wanted;
}

template <Comparison how>
bool compares(Interpreter& at, const Value& value, const Arguments& given) {
  return compare(at.heap(), how, value, *bind("test", given, {"other"}, 1)[0]);
}

bool is_defined(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("defined", given, {});
  return !value.is_undefined();
}

bool is_iterable(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("iterable", given, {});
  return value.is_undefined() || value.is_string() || value.is(Kind::kList) || value.is(Kind::kDict) ||
         value.is(Kind::kLoop);
}

// What has a length and items by index or key.
bool is_sequence(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("sequence", given, {});
  if (value.is(Kind::kList))
    return value.list().form != List::Form::kGenerator && value.list().form != List::Form::kView;
  return value.is_undefined() || value.is_string() || value.is(Kind::kDict);
}

bool is_number(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("number", given, {});
  return value.is_number();
}

bool is_callable(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("callable", given, {});
  switch (value.kind()) {
    case Kind::kUndefined:  // it has __call__, which raises
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kMethod:
      return true;
    default:
      return false;
  }
}

bool is_same(Interpreter&, const Value& value, const Arguments& given) {
  return value.same_as(*bind("sameas", given, {"other"}, 1)[0]);
}

bool is_in(Interpreter& at, const Value& value, const Arguments& given) {
  return contains(at.heap(), *bind("in", given, {"seq"}, 1)[0], value);
}

Value remainder(Interpreter& at, const Value& value, const Value& by) {
  return arithmetic(at.heap(), BinaryOperator::kModulo, value, by);
}

template <std::int64_t rest>
bool is_rest_of_two(Interpreter& at, const Value& value, const Arguments& given) {
  (void)bind("test", given, {});
  return equal(at.heap(), remainder(at, value, Value(std::int64_t{2})), Value(rest));
}

bool is_divisible(Interpreter& at, const Value& value, const Arguments& given) {
  const Value rest = remainder(at, value, *bind("divisibleby", given, {"num"}, 1)[0]);
  return equal(at.heap(), rest, Value(std::int64_t{0}));
}

bool is_lower_text(Interpreter& at, const Value& value, const Arguments& given) {
  (void)bind("lower", given, {});
  return is_lower(text_of(at.heap(), value).bytes());
}

bool is_upper_text(Interpreter& at, const Value& value, const Arguments& given) {
  (void)bind("upper", given, {});
  return is_upper(text_of(at.heap(), value).bytes());
}

bool is_escaped(Interpreter&, const Value& value, const Arguments& given) {
  (void)bind("escaped", given, {});
  return value.is_string() && value.text().markup();
}

template <auto find>
bool names_one(Interpreter& at, const Value& value, const Arguments& given) {
  (void)bind("test", given, {});
  (void)key_text(at.heap(), value);  // refuses what cannot be looked up
  return value.is_string() && find(value.bytes()) != nullptr;
}

bool is_undefined(Interpreter& at, const Value& value, const Arguments& given) { return !is_defined(at, value, given); }

constexpr TestEntry kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_kind<Kind::kNone>},
    {"string", is_kind<Kind::kString>},
    {"mapping", is_kind<Kind::kDict>},
    {"boolean", is_kind<Kind::kBoolean>},
    {"integer", is_kind<Kind::kInteger>},
    {"float", is_kind<Kind::kFloat>},
    {"true", is_boolean_value<true>},
    {"false", is_boolean_value<false>},
    {"number", is_number},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"sameas", is_same},
    {"in", is_in},
    {"odd", is_rest_of_two<1>},
    {"even", is_rest_of_two<0>},
    {"divisibleby", is_divisible},
    {"lower", is_lower_text},
    {"upper", is_upper_text},
    {"escaped", is_escaped},
    {"filter", names_one<find_filter>},
    {"test", names_one<find_test>},
    {"eq", compares<Comparison::kEqual>},
    {"equalto", compares<Comparison::kEqual>},
    {"==", compares<Comparison::kEqual>},
    {"ne", compares<Comparison::kNotEqual>},
    {"!=", compares<Comparison::kNotEqual>},
    {"lt", compares<Comparison::kLess>},
    {"lessthan", compares<Comparison::kLess>},
    {"<", compares<Comparison::kLess>},
    {"le", compares<Comparison::kLessEqual>},
    {"<=", compares<Comparison::kLessEqual>},
    {"gt", compares<Comparison::kGreater>},
    {"greaterthan", compares<Comparison::kGreater>},
    {">", compares<Comparison::kGreater>},
    {"ge", compares<Comparison::kGreaterEqual>},
    {">=", compares<Comparison::kGreaterEqual>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* const found =
      std::ranges::find(kTests, name, [](const TestEntry& entry) { return std::string_view(entry.name); });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace terrace::text::jinja
