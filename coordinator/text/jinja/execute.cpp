#include <fmt/core.h>

#include <variant>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/interpreter.h"
#include "coordinator/text/jinja/level.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {

Text Interpreter::run(const Dict& variables) {
  Scope& globals = *heap_.keep(scopes_, Scope{});
  for (const Dict::Entry& entry : variables.entries) globals.names.emplace_back(entry.key.bytes(), entry.value);
  heap_.charge(globals.names.size() * sizeof(globals.names[0]));
  Text out;
  try {
    (void)execute(program_.body, globals, out);
  } catch (Failure& failure) {
    if (!failure.placed) failure.text = fmt::format("line {}: {}", line_, failure.text);
    throw;
  }
  return out;
}

void Interpreter::print(Text& out, const Text& text) {
  heap_.charge(text.size());
  if (text.size() > heap_.limits().output_bytes - out.size())
    over_limit(fmt::format("the template writes more than {} bytes (limit: output)", heap_.limits().output_bytes));
  out.append(text);
}

Interpreter::Flow Interpreter::execute(const Body& body, Scope& scope, Text& out) {
  const Level level(*this);
  for (const Statement& statement : body) {
    heap_.step();
    line_ = statement.line;
    const Flow flow = std::visit([&](const auto& node) { return execute(node, scope, out); }, statement.node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Data& data, Scope&, Text& out) {
  print(out, data.text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Print& statement, Scope& scope, Text& out) {
  const Value value = evaluate(*statement.value, scope);
  if (value.is_string())
    print(out, value.text());
  else
    print(out, text_of(heap_, value));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const If& statement, Scope& scope, Text& out) {
  for (const auto& [test, body] : statement.branches)
    if (truth(evaluate(*test, scope))) return execute(body, scope, out);
  return execute(statement.otherwise, scope, out);
}

Interpreter::Flow Interpreter::execute(const For& statement, Scope& scope, Text& out) {
  run_loop(statement, evaluate(*statement.iterable, scope), scope, 0, out);
  return Flow::kNext;
}

// The items that the loop's filter lets through.
std::vector<Value> Interpreter::rounds(const For& statement, const Value& iterable, Scope& outer) {
  std::vector<Value> items = items_of(heap_, iterable);
  if (statement.filter == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    Scope& scope = inner(outer);
    assign(statement.target, item, scope);
    if (truth(evaluate(*statement.filter, scope))) kept.push_back(item);
  }
  return kept;
}

void Interpreter::run_loop(const For& statement, const Value& iterable, Scope& outer, std::uint32_t depth, Text& out) {
  Loop& loop = *heap_.keep(loops_, Loop{&statement, &outer, rounds(statement, iterable, outer), 0, depth, {}, false});
  for (loop.index = 0; loop.index < loop.items.size(); ++loop.index) {
    // Each round has names of its own: what it sets is gone in the next.
    Scope& scope = inner(outer);
    set_name(scope, "loop", Value(&loop));
    assign(statement.target, loop.items[loop.index], scope);
    if (execute(statement.body, scope, out) == Flow::kBreak) return;
  }
  if (loop.items.empty()) (void)execute(statement.otherwise, inner(outer), out);
}

Interpreter::Flow Interpreter::execute(const Set& statement, Scope& scope, Text&) {
  assign(statement.target, evaluate(*statement.value, scope), scope);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const SetBlock& statement, Scope& scope, Text&) {
  Text text;
  const Flow flow = execute(statement.body, inner(scope), text);
  if (flow != Flow::kNext) return flow;
  assign(statement.target, filtered(statement.filters, heap_.string(std::move(text)), scope), scope);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const MacroDefinition& macro, Scope& scope, Text&) {
  set_name(scope, macro.name, Value(heap_.keep(macros_, Macro{&macro, &scope})));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const CallBlock& block, Scope& scope, Text& out) {
  const Call& call = std::get<Call>(block.call->node);
  const Value callee = evaluate(*call.callee, scope);
  CallArguments given = arguments(call.arguments, scope);
  given.named.emplace_back("caller", Value(heap_.keep(macros_, Macro{&block.caller, &scope})));
  print(out, text_of(heap_, this->call(callee, given)));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const FilterBlock& block, Scope& scope, Text& out) {
  Text text;
  Scope& inside = inner(scope);
  const Flow flow = execute(block.body, inside, text);
  if (flow != Flow::kNext) return flow;
  print(out, text_of(heap_, filtered(block.filters, heap_.string(std::move(text)), inside)));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const With& statement, Scope& scope, Text& out) {
  Scope& inside = inner(scope);
  for (const auto& [target, value] : statement.names) assign(target, evaluate(*value, scope), inside);
  return execute(statement.body, inside, out);
}

Value Interpreter::filtered(const std::vector<Application>& filters, Value value, Scope& scope) {
  for (const Application& application : filters) {
    const CallArguments given = arguments(application.arguments, scope);
    line_ = application.line;
    value = filter(application.name, value, given);
  }
  return value;
}

void Interpreter::set_name(Scope& scope, std::string_view name, const Value& value) {
  heap_.step(1 + scope.names.size() / 16);
  for (auto& [key, held] : scope.names) {
    if (key != name) continue;
    held = value;
    return;
  }
  heap_.charge(sizeof(scope.names[0]));
  scope.names.emplace_back(name, value);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.tuple) {
    const std::vector<Value> items = items_of(heap_, value);
    if (items.size() > target.parts.size())
      refuse(fmt::format("too many values to unpack (expected {})", target.parts.size()));
    if (items.size() < target.parts.size())
      refuse(fmt::format("not enough values to unpack (expected {}, got {})", target.parts.size(), items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) return set_name(scope, target.name, value);
  const Value space = evaluate(Name{target.name}, scope);
  if (!space.is(Kind::kNamespace)) refuse("cannot assign attribute on non-namespace object");
  if (Value* const held = space.name_space().find(target.attribute)) {
    *held = value;
    return;
  }
  heap_.charge(target.attribute.size() + 64);
  space.name_space().names.emplace_back(target.attribute, value);
}

}  // namespace terrace::text::jinja
