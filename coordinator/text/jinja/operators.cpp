#include "coordinator/text/jinja/operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "coordinator/text/jinja/interpreter.h"
#include "coordinator/text/jinja/percent_format.h"
#include "coordinator/text/jinja/strings.h"
#include "coordinator/text/jinja/unicode.h"

namespace terrace::text::jinja {
namespace {

using Form = List::Form;

// A 64-bit int and a double compare exactly as the wider type; it holds both.
long double wide(const Value& value) {
  return value.is(Kind::kFloat) ? static_cast<long double>(value.number()) : static_cast<long double>(value.integer());
}

bool equal_lists(Heap& heap, const List& a, const List& b, std::uint32_t& depth);

bool equal_at(Heap& heap, const Value& a, const Value& b, std::uint32_t& depth) {
  const Nesting nesting(heap, depth);
  if (a.is_number() && b.is_number()) return wide(a) == wide(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      heap.read(std::min(a.bytes().size(), b.bytes().size()));
      return a.bytes() == b.bytes();
    case Kind::kList:
      return &a.list() == &b.list() || equal_lists(heap, a.list(), b.list(), depth);
    case Kind::kDict:
      if (&a.dict() == &b.dict()) return true;
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const Dict::Entry& entry : a.dict().entries) {
        const Value* const other = b.dict().find(key_text(heap, entry.key));
        if (other == nullptr || !equal_at(heap, entry.value, *other, depth)) return false;
      }
      return true;
    default:
      return a.same_as(b);
  }
}

bool equal_lists(Heap& heap, const List& a, const List& b, std::uint32_t& depth) {
  const bool by_identity = a.form == Form::kGenerator || a.form == Form::kView;
  if (a.form != b.form || by_identity || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equal_at(heap, a.items[i], b.items[i], depth)) return false;
  return true;
}

[[noreturn]] void refuse_operands(const char* op, const Value& a, const Value& b) {
  for (const Value* const value : {&a, &b})
    if (value->is_undefined()) refuse(value->why());
  for (const Value* const value : {&a, &b})
    if (value->is(Kind::kList) && value->list().form == Form::kView)
      not_here("views of objects as sets are not in this interpreter");
  refuse(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

std::partial_ordering order_at(Heap& heap, const Value& a, const Value& b, const char* op, std::uint32_t& depth) {
  const Nesting nesting(heap, depth);
  if (a.is_number() && b.is_number()) return wide(a) <=> wide(b);
  if (a.is_string() && b.is_string()) {
    heap.read(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes().compare(b.bytes()) <=> 0;  // bytes of UTF-8 are in the order of the characters
  }
  const bool lists = a.is(Kind::kList) && b.is(Kind::kList) && a.list().form == b.list().form &&
                     (a.list().form == Form::kList || a.list().form == Form::kTuple);
  if (lists) {
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (!equal_at(heap, left[i], right[i], depth)) return order_at(heap, left[i], right[i], op, depth);
    return left.size() <=> right.size();
  }
  for (const Value* const value : {&a, &b})
    if (value->is_undefined()) refuse(value->why());
  refuse(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
}

[[noreturn]] void too_large() { not_here("the result of a calculation is beyond the 64 bits that integers have here"); }

// ---- numbers
using Integer = std::int64_t;

std::optional<Integer> integer_power(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return result;
}

Value integer_arithmetic(BinaryOperator op, Integer a, Integer b) {
  Integer result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) too_large();
      return Value(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) too_large();
      return Value(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) too_large();
      return Value(result);
    case BinaryOperator::kDivide:
      if (b == 0) refuse("division by zero");
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (b == 0) refuse("integer division or modulo by zero");
      if (b == -1) {  // the least integer has no positive counterpart
        if (op == BinaryOperator::kModulo) return Value(Integer{0});
        return integer_arithmetic(BinaryOperator::kSubtract, 0, a);
      }
      const Integer rest = a % b;
      const bool down = rest != 0 && (rest < 0) != (b < 0);
      return Value(op == BinaryOperator::kModulo ? rest + (down ? b : 0) : a / b - (down ? 1 : 0));
    }
    default:
      break;
  }
  if (b < 0) {
    if (a == 0) refuse("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  const bool small = a >= -1 && a <= 1;
  if (const auto power = small ? (a == -1 && b % 2 == 0 ? 1 : b == 0 ? 1 : a) : integer_power(a, b))
    return Value(*power);
  too_large();
}

double float_floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value float_arithmetic(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value(a + b);
    case BinaryOperator::kSubtract:
      return Value(a - b);
    case BinaryOperator::kMultiply:
      return Value(a * b);
    case BinaryOperator::kDivide:
      if (b == 0) refuse("float division by zero");
      return Value(a / b);
    case BinaryOperator::kFloorDivide:
      if (b == 0) refuse("float floor division by zero");
      return Value(float_floor_divide(a, b));
    case BinaryOperator::kModulo:
      if (b == 0) refuse("float modulo");
      return Value(float_modulo(a, b));
    default:
      break;
  }
  if (a == 0 && b < 0) refuse("0.0 cannot be raised to a negative power");
  if (a < 0 && std::floor(b) != b) not_here("complex numbers are not in this interpreter");
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) refuse("(34, 'Numerical result out of range')");
  return Value(power);
}

// ---- texts and lists
Value repeated(Heap& heap, const Value& what, Integer times) {
  const std::size_t n = times > 0 ? static_cast<std::size_t>(times) : 0;
  const std::size_t size = what.is_string() ? what.bytes().size() : what.list().items.size() * sizeof(Value);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(n, size, &bytes)) bytes = SIZE_MAX;
  heap.charge(bytes);
  if (what.is_string()) {
    Text text;
    for (std::size_t i = 0; i < n && size > 0; ++i) text.append(what.text());
    text.set_markup(what.text().markup());
    return heap.string(std::move(text));
  }
  std::vector<Value> items;
  const auto& once = what.list().items;
  for (std::size_t i = 0; i < n && size > 0; ++i) items.insert(items.end(), once.begin(), once.end());
  return heap.sequence(std::move(items), what.list().form);
}

bool can_be_joined(const Value& a, const Value& b) {
  return a.is(Kind::kList) && b.is(Kind::kList) && a.list().form == b.list().form &&
         (a.list().form == Form::kList || a.list().form == Form::kTuple);
}

Value joined(Heap& heap, const Value& a, const Value& b) {
  heap.charge((a.list().items.size() + b.list().items.size()) * sizeof(Value));
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return heap.sequence(std::move(items), a.list().form);
}

bool can_be_repeated(const Value& value) {
  return value.is_string() ||
         (value.is(Kind::kList) && (value.list().form == Form::kList || value.list().form == Form::kTuple));
}

const char* symbol(BinaryOperator op) {
  constexpr const char* kSymbols[] = {"and", "or", "+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<std::size_t>(op)];
}

}  // namespace

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBoolean:
    case Kind::kInteger:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.bytes().empty();
    case Kind::kList:
      return value.list().form == Form::kGenerator || !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

bool equal(Heap& heap, const Value& a, const Value& b) {
  std::uint32_t depth = 0;
  return equal_at(heap, a, b, depth);
}

std::partial_ordering order(Heap& heap, const Value& a, const Value& b, const char* op) {
  std::uint32_t depth = 0;
  return order_at(heap, a, b, op, depth);
}

bool compare(Heap& heap, Comparison how, const Value& a, const Value& b) {
  switch (how) {
    case Comparison::kEqual:
      return equal(heap, a, b);
    case Comparison::kNotEqual:
      return !equal(heap, a, b);
    case Comparison::kLess:
      return order(heap, a, b, "<") < 0;
    case Comparison::kLessEqual:
      return order(heap, a, b, "<=") <= 0;
    case Comparison::kGreater:
      return order(heap, a, b, ">") > 0;
    case Comparison::kGreaterEqual:
      return order(heap, a, b, ">=") >= 0;
    case Comparison::kIn:
      return contains(heap, b, a);
    case Comparison::kNotIn:
      return !contains(heap, b, a);
  }
  return false;
}

bool contains(Heap& heap, const Value& all, const Value& one) {
  if (all.is_string()) {
    if (!one.is_string()) refuse(fmt::format("'in <string>' requires string as left operand, not {}", type_name(one)));
    return find_first(heap, all.bytes(), one.bytes()) != std::string::npos;
  }
  if (all.is(Kind::kDict)) return all.dict().find(key_text(heap, one)) != nullptr;
  if (!all.is(Kind::kList) && !all.is_undefined())
    refuse(fmt::format("argument of type '{}' is not iterable", type_name(all)));
  for (const Value& item : items_of(heap, all))
    if (equal(heap, item, one)) return true;
  return false;
}

Value add(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    heap.charge(a.bytes().size() + b.bytes().size());
    const bool markup = a.text().markup() || b.text().markup();
    Text sum;
    for (const Value* const part : {&a, &b})
      sum.append(markup && !part->text().markup() ? escaped(part->text()) : part->text());
    sum.set_markup(markup);
    return heap.string(std::move(sum));
  }
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(BinaryOperator::kAdd, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return Value(a.number() + b.number());
  if (can_be_joined(a, b)) return joined(heap, a, b);
  if (a.is_string() && !b.is_undefined())
    refuse(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  refuse_operands("+", a, b);
}

Value arithmetic(Heap& heap, BinaryOperator op, const Value& a, const Value& b) {
  heap.step();
  if (op == BinaryOperator::kAdd) return add(heap, a, b);
  if (op == BinaryOperator::kModulo && a.is_string()) return heap.string(percent_format(heap, a.text(), b));
  if (op == BinaryOperator::kMultiply) {
    if (can_be_repeated(a) && b.is_integral()) return repeated(heap, a, b.integer());
    if (can_be_repeated(b) && a.is_integral()) return repeated(heap, b, a.integer());
  }
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.number(), b.number());
  refuse_operands(symbol(op), a, b);
}

Value negative(Heap& heap, UnaryOperator op, const Value& a) {
  if (a.is_undefined()) refuse(a.why());
  const char* const sign = op == UnaryOperator::kMinus ? "-" : "+";
  if (!a.is_number()) refuse(fmt::format("bad operand type for unary {}: '{}'", sign, type_name(a)));
  if (a.is(Kind::kFloat)) return Value(op == UnaryOperator::kMinus ? -a.number() : a.number());
  const BinaryOperator how = op == UnaryOperator::kMinus ? BinaryOperator::kSubtract : BinaryOperator::kAdd;
  return arithmetic(heap, how, Value(Integer{0}), a);
}

std::vector<Value> items_of(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kString: {
      std::vector<Value> characters;
      const std::string& bytes = value.bytes();
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t n = character_bytes(bytes[at]);
        heap.charge(sizeof(Value));
        characters.push_back(heap.string(value.text().slice(at, at + n)));
        at += n;
      }
      return characters;
    }
    case Kind::kList: {
      List& list = value.list();
      if (list.form == Form::kGenerator && std::exchange(list.spent, true)) return {};
      heap.charge(list.items.size() * sizeof(Value));
      return list.items;
    }
    case Kind::kDict: {
      heap.charge(value.dict().entries.size() * sizeof(Value));
      std::vector<Value> keys;
      for (const Dict::Entry& entry : value.dict().entries) keys.push_back(entry.key);
      return keys;
    }
    case Kind::kLoop:
      not_here("a loop's own `loop` is looped over, which is not in this interpreter");
    default:
      refuse(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

std::size_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return count_characters(value.bytes());
  if (value.is(Kind::kDict)) return value.dict().entries.size();
  if (value.is(Kind::kList) && value.list().form != Form::kGenerator) return value.list().items.size();
  if (value.is(Kind::kLoop)) return value.loop().items.size();
  refuse(fmt::format("object of type '{}' has no len()", type_name(value)));
}

}  // namespace terrace::text::jinja
