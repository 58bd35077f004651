#include <fmt/core.h>

#include <algorithm>
#include <variant>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/interpreter.h"
#include "coordinator/text/jinja/level.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/unicode.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {

Value Interpreter::evaluate(const Expression& expression, Scope& scope) {
  const Level level(*this);
  line_ = expression.line;
  return std::visit([this, &scope](const auto& node) { return evaluate(node, scope); }, expression.node);
}

Value Interpreter::evaluate(const Name& name, Scope& scope) {
  for (Scope* at = &scope; at != nullptr; at = at->parent) {
    heap_.step(1 + at->names.size() / 16);
    for (const auto& [key, value] : at->names)
      if (key == name.name) return value;
  }
  if (const Function* const function = find_function(name.name)) return Value(function);
  return heap_.undefined(fmt::format("'{}' is undefined", name.name));
}

Value Interpreter::evaluate(const Sequence& sequence, Scope& scope) {
  std::vector<Value> items;
  items.reserve(sequence.items.size());
  for (const ExpressionPtr& item : sequence.items) items.push_back(evaluate(*item, scope));
  return heap_.sequence(std::move(items), sequence.tuple ? List::Form::kTuple : List::Form::kList);
}

Value Interpreter::evaluate(const DictDisplay& display, Scope& scope) {
  Dict* const dict = heap_.dict();
  for (const auto& [key, value] : display.entries) {
    const Value made = evaluate(*key, scope);
    heap_.set(*dict, made, evaluate(*value, scope));
  }
  return Value(dict);
}

Value Interpreter::evaluate(const Unary& unary, Scope& scope) {
  const Value operand = evaluate(*unary.operand, scope);
  if (unary.op == UnaryOperator::kNot) return Value(!truth(operand));
  return negative(heap_, unary.op, operand);
}

Value Interpreter::evaluate(const Binary& binary, Scope& scope) {
  const Value left = evaluate(*binary.left, scope);
  if (binary.op == BinaryOperator::kAnd) return truth(left) ? evaluate(*binary.right, scope) : left;
  if (binary.op == BinaryOperator::kOr) return truth(left) ? left : evaluate(*binary.right, scope);
  return arithmetic(heap_, binary.op, left, evaluate(*binary.right, scope));
}

Value Interpreter::evaluate(const Concatenation& concatenation, Scope& scope) {
  Text joined;
  for (const ExpressionPtr& part : concatenation.parts) {
    const Text text = text_of(heap_, evaluate(*part, scope));
    heap_.charge(text.size());
    joined.append(text);
  }
  return heap_.string(std::move(joined));
}

Value Interpreter::evaluate(const Compare& compare, Scope& scope) {
  Value left = evaluate(*compare.first, scope);
  for (const auto& [how, operand] : compare.rest) {
    const Value right = evaluate(*operand, scope);
    if (!jinja::compare(heap_, how, left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

Value Interpreter::evaluate(const Conditional& conditional, Scope& scope) {
  if (truth(evaluate(*conditional.test, scope))) return evaluate(*conditional.then, scope);
  if (conditional.otherwise != nullptr) return evaluate(*conditional.otherwise, scope);
  return heap_.undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate(const Attribute& attribute, Scope& scope) {
  const Value object = evaluate(*attribute.object, scope);
  return this->attribute(object, attribute.name);
}

Value Interpreter::evaluate(const Item& item, Scope& scope) {
  const Value object = evaluate(*item.object, scope);
  if (const auto* const slice = std::get_if<Slice>(&item.key->node)) return sliced(object, *slice, scope);
  return this->item(object, evaluate(*item.key, scope));
}

Value Interpreter::evaluate(const Slice&, Scope&) { refuse("a slice is no value of its own"); }

Value Interpreter::evaluate(const Call& call, Scope& scope) {
  const Value callee = evaluate(*call.callee, scope);
  const CallArguments given = arguments(call.arguments, scope);
  return this->call(callee, given);
}

Value Interpreter::evaluate(const Filtered& filtered, Scope& scope) {
  const Value input = evaluate(*filtered.input, scope);
  const CallArguments given = arguments(filtered.filter.arguments, scope);
  line_ = filtered.filter.line;
  return filter(filtered.filter.name, input, given);
}

Value Interpreter::evaluate(const Tested& tested, Scope& scope) {
  const Value input = evaluate(*tested.input, scope);
  const CallArguments given = arguments(tested.test.arguments, scope);
  line_ = tested.test.line;
  return Value(test(tested.test.name, input, given));
}

CallArguments Interpreter::arguments(const ArgumentList& list, Scope& scope) {
  CallArguments given;
  for (const ExpressionPtr& value : list.positional) given.positional.push_back(evaluate(*value, scope));
  for (const auto& [name, value] : list.named) given.named.emplace_back(name, evaluate(*value, scope));
  if (list.star != nullptr)
    for (const Value& value : items_of(heap_, evaluate(*list.star, scope))) given.positional.push_back(value);
  if (list.star_star != nullptr) {
    const Value names = evaluate(*list.star_star, scope);
    if (!names.is(Kind::kDict)) refuse(fmt::format("argument after ** must be a mapping, not {}", type_name(names)));
    for (const Dict::Entry& entry : names.dict().entries) {
      if (!entry.key.is_string()) refuse("keywords must be strings");
      given.named.emplace_back(entry.key.bytes(), entry.value);
    }
  }
  return given;
}

namespace {

// Python's slice.indices(): where it begins, and how many items of which stride it takes.
struct Cut {
  std::int64_t start, count, step;
};

Cut cut_of(std::int64_t size, const std::optional<std::int64_t>& start, const std::optional<std::int64_t>& stop,
           std::int64_t step) {
  const bool backward = step < 0;
  const std::int64_t low = backward ? -1 : 0, high = backward ? size - 1 : size;
  const auto place = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  const std::int64_t first = start ? place(*start) : backward ? high : low;
  const std::int64_t end = stop ? place(*stop) : backward ? low : high;
  const std::int64_t span = backward ? first - end : end - first;
  if (span <= 0) return {first, 0, step};
  // -step would not be there for the least integer.
  const std::uint64_t stride = backward ? 0 - static_cast<std::uint64_t>(step) : static_cast<std::uint64_t>(step);
  return {first, static_cast<std::int64_t>((static_cast<std::uint64_t>(span) - 1) / stride + 1), step};
}

Text cut_text(Heap& heap, const Text& text, const Cut& cut) {
  const std::string& bytes = text.bytes();
  heap.read(bytes.size());
  if (cut.step == 1) {
    const std::size_t begin = offset_of_character(bytes, static_cast<std::size_t>(cut.start));
    const std::size_t end =
        begin + offset_of_character(std::string_view(bytes).substr(begin), static_cast<std::size_t>(cut.count));
    return text.slice(begin, end);
  }
  std::vector<std::size_t> begins;
  heap.charge(bytes.size() * sizeof(std::size_t));
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes[at])) begins.push_back(at);
  Text out;
  out.set_markup(text.markup());
  for (std::int64_t i = 0; i < cut.count; ++i) {
    const std::size_t at = begins[static_cast<std::size_t>(cut.start + i * cut.step)];
    out.append(text.slice(at, at + character_bytes(bytes[at])));
  }
  return out;
}

}  // namespace

Value Interpreter::sliced(const Value& object, const Slice& slice, Scope& scope) {
  const auto bound_of = [&](const ExpressionPtr& part) -> std::optional<std::int64_t> {
    if (part == nullptr) return std::nullopt;
    const Value value = evaluate(*part, scope);
    if (value.is_none()) return std::nullopt;
    if (value.is_undefined()) refuse("slice indices must be integers or None or have an __index__ method");
    return integer_of(value);
  };
  const auto start = bound_of(slice.start), stop = bound_of(slice.stop), step = bound_of(slice.step);
  if (object.is_undefined()) refuse(object.why());
  if (step && *step == 0) refuse("slice step cannot be zero");
  const bool list = object.is(Kind::kList) &&
                    (object.list().form != List::Form::kGenerator && object.list().form != List::Form::kView);
  if (!object.is_string() && !list)
    refuse(fmt::format("'{}' object is not subscriptable by a slice", type_name(object)));
  const Cut cut = cut_of(static_cast<std::int64_t>(length(object)), start, stop, step.value_or(1));
  if (object.is_string()) return heap_.string(cut_text(heap_, object.text(), cut));
  heap_.charge(static_cast<std::size_t>(cut.count) * sizeof(Value));
  std::vector<Value> items;
  for (std::int64_t i = 0; i < cut.count; ++i)
    items.push_back(object.list().items[static_cast<std::size_t>(cut.start + i * cut.step)]);
  return heap_.sequence(std::move(items), object.list().form);
}

}  // namespace terrace::text::jinja
