// Runs a Program. One rendering, one thread, one Interpreter.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/text/jinja/syntax.h"
#include "coordinator/text/jinja/value.h"

namespace terrace::text::jinja {

class Interpreter;

// Names that one block, loop round or macro call has set. Lookup goes on in the one around it.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

struct Macro {
  const MacroDefinition* definition;
  Scope* scope;  // where it was defined
};

// A function of the language's own.
struct Function {
  const char* name;
  Value (*run)(Interpreter&, const CallArguments&);
};
// A method of a type of values.
struct MethodEntry {
  const char* name;
  Value (*run)(Interpreter&, const Value& self, const CallArguments&);
};
struct Method {
  Value self;
  const MethodEntry* entry;
};

// What `loop` is in a loop's body.
struct Loop {
  const For* statement;
  Scope* outer;              // around the loop
  std::vector<Value> items;  // all rounds
  std::size_t index = 0;     // of this round
  std::uint32_t depth = 0;   // of a recursive loop
  std::vector<Value> last_changed;
  bool has_changed = false;
};

class Interpreter {
 public:
  // `program` and `now` are borrowed until the end.
  Interpreter(const Program& program, const Limits& limits, const std::tm& now)
      : program_(program), now_(now), heap_(limits) {}

  // What the template prints. Throws Failure, its text complete.
  Text run(const Dict& variables);

  // ---- for filters, tests, functions and methods
  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }
  Value call(const Value& callee, const CallArguments& arguments);
  Value filter(std::string_view name, const Value& input, const CallArguments& arguments);
  bool test(std::string_view name, const Value& input, const CallArguments& arguments);
  // object.name and object[key], each of which looks where the other does when it finds nothing itself.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value bound(const Value& self, const MethodEntry* entry) { return Value(heap_.keep(methods_, Method{self, entry})); }

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  class Level;  // counts nested evaluation

  // statements (execute.cpp)
  Flow execute(const Body& body, Scope& scope, Text& out);
  Flow execute(const Data& data, Scope& scope, Text& out);
  Flow execute(const Print& print, Scope& scope, Text& out);
  Flow execute(const If& statement, Scope& scope, Text& out);
  Flow execute(const For& statement, Scope& scope, Text& out);
  Flow execute(const Set& statement, Scope& scope, Text& out);
  Flow execute(const SetBlock& statement, Scope& scope, Text& out);
  Flow execute(const MacroDefinition& macro, Scope& scope, Text& out);
  Flow execute(const CallBlock& block, Scope& scope, Text& out);
  Flow execute(const FilterBlock& block, Scope& scope, Text& out);
  Flow execute(const With& statement, Scope& scope, Text& out);
  Flow execute(const Break&, Scope&, Text&) { return Flow::kBreak; }
  Flow execute(const Continue&, Scope&, Text&) { return Flow::kContinue; }
  void run_loop(const For& statement, const Value& iterable, Scope& outer, std::uint32_t depth, Text& out);
  std::vector<Value> rounds(const For& statement, const Value& iterable, Scope& outer);
  void assign(const Target& target, const Value& value, Scope& scope);
  void set_name(Scope& scope, std::string_view name, const Value& value);
  Value filtered(const std::vector<Application>& filters, Value value, Scope& scope);
  void print(Text& out, const Text& text);
  Scope& inner(Scope& scope) { return *heap_.keep(scopes_, Scope{&scope, {}}); }

  // expressions (evaluate.cpp)
  Value evaluate(const Expression& expression, Scope& scope);
  Value evaluate(const StringLiteral& literal, Scope&) { return Value(&literal.text); }
  Value evaluate(const Literal& literal, Scope&) { return literal.value; }
  Value evaluate(const Name& name, Scope& scope);
  Value evaluate(const Sequence& sequence, Scope& scope);
  Value evaluate(const DictDisplay& display, Scope& scope);
  Value evaluate(const Unary& unary, Scope& scope);
  Value evaluate(const Binary& binary, Scope& scope);
  Value evaluate(const Concatenation& concatenation, Scope& scope);
  Value evaluate(const Compare& compare, Scope& scope);
  Value evaluate(const Conditional& conditional, Scope& scope);
  Value evaluate(const Attribute& attribute, Scope& scope);
  Value evaluate(const Item& item, Scope& scope);
  Value evaluate(const Slice& slice, Scope& scope);
  Value evaluate(const Call& call, Scope& scope);
  Value evaluate(const Filtered& filtered, Scope& scope);
  Value evaluate(const Tested& tested, Scope& scope);
  Value sliced(const Value& object, const Slice& slice, Scope& scope);
  CallArguments arguments(const ArgumentList& list, Scope& scope);

  // calls (call.cpp)
  Value call_macro(const Macro& macro, const CallArguments& arguments);
  Value call_loop(Loop& loop, const CallArguments& arguments);
  Value loop_attribute(Loop& loop, std::string_view name);

  const Program& program_;
  const std::tm& now_;
  Heap heap_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
  std::deque<Method> methods_;
  std::uint32_t line_ = 1;  // of what is evaluated now
  std::uint32_t depth_ = 0;
};

}  // namespace terrace::text::jinja
