#include "coordinator/text/jinja/value.h"

#include <fmt/core.h>

#include <cmath>

namespace terrace::text::jinja {

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBoolean:
    case Kind::kInteger:
      return integer_ == other.integer_;
    case Kind::kFloat:
      return number_ == other.number_;
    case Kind::kString:
      return bytes() == other.bytes();
    default:
      return address() == other.address();
  }
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : names)
    if (key == name) return &value;
  return nullptr;
}

void Heap::no_steps_left() const {
  over_limit(fmt::format("the template takes more than {} steps (limit: steps)", limits_.steps));
}

void Heap::no_bytes_left() const {
  over_limit(
      fmt::format("the template's values take more than {} bytes (limit: memory of values)", limits_.value_bytes));
}

Value Heap::string(Text text) {
  charge(sizeof(Text) + text.size() + text.said().size() * sizeof(Range));
  texts_.push_back(std::move(text));
  return Value(&texts_.back());
}

Value Heap::undefined(std::string why) { return Value::undefined(&string(std::move(why)).text()); }

List* Heap::list(std::vector<Value> items, List::Form form) {
  charge(sizeof(List) + items.size() * sizeof(Value));
  lists_.push_back({std::move(items), form});
  return &lists_.back();
}

Dict* Heap::dict() {
  charge(sizeof(Dict));
  dicts_.emplace_back();
  return &dicts_.back();
}

void Heap::set(Dict& dict, const Value& key, const Value& value) {
  std::string text = key_text(*this, key);
  const auto place = dict.places.find(text);
  if (place != dict.places.end()) {
    dict.entries[place->second].value = value;
    return;
  }
  constexpr std::size_t kNode = 64;  // of the map, about
  charge(sizeof(Dict::Entry) + text.size() + kNode);
  dict.places.emplace(std::move(text), dict.entries.size());
  dict.entries.push_back({key, value});
}

void Heap::append(List& list, const Value& value) {
  charge(sizeof(Value));
  list.items.push_back(value);
}

std::string key_text(Heap& heap, const Value& key) {
  switch (key.kind()) {
    case Kind::kNone:
      return "n";
    case Kind::kUndefined:
      return "u";
    case Kind::kString:
      heap.read(key.bytes().size());
      return "s" + key.bytes();
    case Kind::kBoolean:
    case Kind::kInteger:
      return fmt::format("i{}", key.integer());
    case Kind::kFloat:
      // Whole numbers are the key of the int; beyond 2^63 there is no such int.
      if (std::trunc(key.number()) == key.number() && std::fabs(key.number()) < 0x1p63)
        return fmt::format("i{}", static_cast<std::int64_t>(key.number()));
      return fmt::format("f{:a}", key.number());
    case Kind::kList:
      if (key.list().form == List::Form::kTuple) {
        // Tuples cannot hold themselves, but one another.
        std::string text = "t";
        for (const Value& item : key.list().items) {
          const std::string part = key_text(heap, item);
          heap.charge(part.size() + 8);
          text += fmt::format("{}:{}", part.size(), part);
        }
        return text;
      }
      break;
    case Kind::kDict:
      break;
    default:
      return fmt::format("p{}", key.address());  // itself alone
  }
  refuse(fmt::format("unhashable type: '{}'", type_name(key)));
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBoolean:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.text().markup() ? "Markup" : "str";
    case Kind::kList:
      switch (value.list().form) {
        case List::Form::kList:
          return "list";
        case List::Form::kTuple:
          return "tuple";
        case List::Form::kRange:
          return "range";
        case List::Form::kView:
          return value.list().view;
        case List::Form::kGenerator:
          return "generator";
      }
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
  }
  return "object";
}

std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is(Kind::kNamespace)) return "jinja2.utils.Namespace object";
  if (value.is(Kind::kLoop)) return "jinja2.runtime.LoopContext object";
  if (value.is(Kind::kMacro)) return "jinja2.runtime.Macro object";
  return fmt::format("{} object", type_name(value));
}

Nesting::Nesting(Heap& heap, std::uint32_t& depth) : depth_(depth) {
  heap.step();
  if (depth_ >= heap.limits().value_depth)
    over_limit(fmt::format("lists and objects lie more than {} deep in one another (limit: depth of values)",
                           heap.limits().value_depth));
  ++depth_;
}

}  // namespace terrace::text::jinja
