#include <fmt/core.h>

#include <algorithm>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/interpreter.h"
#include "coordinator/text/jinja/level.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/unicode.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {

Value Interpreter::call(const Value& callee, const CallArguments& arguments) {
  const Level level(*this);
  switch (callee.kind()) {
    case Kind::kUndefined:
      refuse(callee.why());
    case Kind::kFunction:
      return callee.function().run(*this, arguments);
    case Kind::kMethod:
      return callee.method().entry->run(*this, callee.method().self, arguments);
    case Kind::kMacro:
      return call_macro(callee.macro(), arguments);
    case Kind::kLoop:
      return call_loop(callee.loop(), arguments);
    default:
      refuse(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

Value Interpreter::filter(std::string_view name, const Value& input, const CallArguments& arguments) {
  const FilterEntry* const entry = find_filter(name);
  if (entry == nullptr) not_here(fmt::format("there is no filter '{}' in this interpreter", name));
  const Level level(*this);
  return entry->run(*this, input, arguments);
}

bool Interpreter::test(std::string_view name, const Value& input, const CallArguments& arguments) {
  const TestEntry* const entry = find_test(name);
  if (entry == nullptr) not_here(fmt::format("there is no test '{}' in this interpreter", name));
  const Level level(*this);
  return entry->run(*this, input, arguments);
}

// jinja2's Macro.__call__: positional arguments, then named ones, then defaults; what is left over goes to varargs and
// kwargs where the body reads them, and is refused where not.
Value Interpreter::call_macro(const Macro& macro, const CallArguments& given) {
  const MacroDefinition& definition = *macro.definition;
  const std::size_t n_parameters = definition.parameters.size();
  std::vector<std::pair<std::string_view, Value>> named = given.named;
  const auto take_named = [&named](std::string_view name) -> std::optional<Value> {
    const auto found = std::ranges::find(named, name, &std::pair<std::string_view, Value>::first);
    if (found == named.end()) return std::nullopt;
    const Value value = found->second;
    named.erase(found);
    return value;
  };

  Scope& scope = inner(*macro.scope);
  std::vector<std::optional<Value>> values(n_parameters);
  bool has_caller = false;
  for (std::size_t i = 0; i < n_parameters; ++i) {
    const std::string& name = definition.parameters[i].name;
    values[i] = i < given.positional.size() ? std::optional(given.positional[i]) : take_named(name);
    has_caller = has_caller || name == "caller";
  }
  if (definition.reads_caller && !has_caller) {
    const auto caller = take_named("caller");
    set_name(scope, "caller", caller ? *caller : heap_.undefined("No caller defined"));
  }
  if (definition.reads_kwargs) {
    Dict* const rest = heap_.dict();
    for (const auto& [name, value] : named) heap_.set(*rest, heap_.string(std::string(name)), value);
    set_name(scope, "kwargs", Value(rest));
  } else if (!named.empty()) {
    refuse(fmt::format("macro '{}' takes no keyword argument '{}'", definition.name, named.front().first));
  }
  const std::size_t n_taken = std::min(given.positional.size(), n_parameters);
  if (definition.reads_varargs)
    set_name(scope, "varargs",
             heap_.sequence({given.positional.begin() + static_cast<std::ptrdiff_t>(n_taken), given.positional.end()},
                            List::Form::kTuple));
  else if (given.positional.size() > n_parameters)
    refuse(fmt::format("macro '{}' takes not more than {} argument(s)", definition.name, n_parameters));

  // A default may read the parameters before it.
  for (std::size_t i = 0; i < n_parameters; ++i) {
    const Parameter& parameter = definition.parameters[i];
    if (!values[i] && parameter.otherwise != nullptr) values[i] = evaluate(*parameter.otherwise, scope);
    if (!values[i]) values[i] = heap_.undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    set_name(scope, parameter.name, *values[i]);
  }
  const std::uint32_t line = line_;
  Text out;
  (void)execute(definition.body, scope, out);
  line_ = line;
  return heap_.string(std::move(out));
}

Value Interpreter::call_loop(Loop& loop, const CallArguments& given) {
  if (!loop.statement->recursive) refuse("The loop must have the 'recursive' marker to be called recursively.");
  const auto bound_arguments = bind("loop", given, {"iterable"}, 1);
  Text out;
  run_loop(*loop.statement, *bound_arguments[0], *loop.outer, loop.depth + 1, out);
  return heap_.string(std::move(out));
}

namespace {

Value cycle(Interpreter&, const Value& self, const CallArguments& given) {
  if (given.positional.empty()) refuse("no items for cycling given");
  return given.positional[self.loop().index % given.positional.size()];
}

Value changed(Interpreter& at, const Value& self, const CallArguments& given) {
  Loop& loop = self.loop();
  const bool same = loop.has_changed && loop.last_changed.size() == given.positional.size() &&
                    std::equal(given.positional.begin(), given.positional.end(), loop.last_changed.begin(),
                               [&at](const Value& a, const Value& b) { return equal(at.heap(), a, b); });
  loop.has_changed = true;
  loop.last_changed = given.positional;
  return Value(!same);
}

constexpr MethodEntry kCycle = {"cycle", cycle};
constexpr MethodEntry kChanged = {"changed", changed};

}  // namespace

Value Interpreter::loop_attribute(Loop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto n = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(n - index);
  if (name == "revindex0") return Value(n - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == n);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(std::int64_t{loop.depth} + 1);
  if (name == "depth0") return Value(std::int64_t{loop.depth});
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : heap_.undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < n ? loop.items[loop.index + 1] : heap_.undefined("there is no next item");
  if (name == "cycle") return bound(Value(&loop), &kCycle);
  if (name == "changed") return bound(Value(&loop), &kChanged);
  return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(Value(&loop)), name));
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) refuse(object.why());
  if (object.is(Kind::kLoop)) return loop_attribute(object.loop(), name);
  if (object.is(Kind::kNamespace))
    if (const Value* const value = object.name_space().find(name)) return *value;
  if (object.is(Kind::kMacro) && name == "name") return heap_.string(object.macro().definition->name);
  if (const MethodEntry* const method = find_method(object, name)) return bound(object, method);
  if (object.is(Kind::kDict))
    if (const Value* const value = object.dict().find("s" + std::string(name))) return *value;
  return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) refuse(object.why());
  if (object.is(Kind::kDict)) {
    const bool has_key = !key.is(Kind::kDict) && !(key.is(Kind::kList) && key.list().form != List::Form::kTuple);
    const Value* const value = has_key ? object.dict().find(key_text(heap_, key)) : nullptr;
    if (value != nullptr) return *value;
  }
  if (key.is_integral() && (object.is_string() || object.is(Kind::kList))) {
    const bool indexable =
        object.is_string() || (object.list().form != List::Form::kGenerator && object.list().form != List::Form::kView);
    const auto n = indexable ? static_cast<std::int64_t>(length(object)) : 0;
    std::int64_t at = key.integer();
    if (at < 0) at += n;
    if (at >= 0 && at < n) {
      if (object.is(Kind::kList)) return object.list().items[static_cast<std::size_t>(at)];
      const std::string& bytes = object.bytes();
      heap_.read(bytes.size());
      const std::size_t begin = offset_of_character(bytes, static_cast<std::size_t>(at));
      return heap_.string(object.text().slice(begin, begin + character_bytes(bytes[begin])));
    }
  }
  // As an attribute, but for an object's own entries, which were looked at.
  if (key.is_string()) {
    if (!object.is(Kind::kDict)) return attribute(object, key.bytes());
    if (const MethodEntry* const method = find_method(object, key.bytes())) return bound(object, method);
    return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), key.bytes()));
  }
  return heap_.undefined(fmt::format("{} has no element {}", object_name(object), repr_of(heap_, key).bytes()));
}

}  // namespace terrace::text::jinja
