// The checked tree of a template: what the parser makes and the interpreter runs. Immutable once made.
//
// Every node knows its line and how deep the tree below it is; the parser refuses deeper ones than Limits say, so that
// whoever recurses over the tree is bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/text/jinja/text.h"
#include "coordinator/text/jinja/value.h"

namespace terrace::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;       // *args
  ExpressionPtr star_star;  // **kwargs
};
// A filter's or test's name and arguments, without what it is applied to.
struct Application {
  std::string name;
  ArgumentList arguments;
  std::uint32_t line = 0;
};

enum class UnaryOperator : std::uint8_t { kNot, kMinus, kPlus };
enum class BinaryOperator : std::uint8_t {
  kAnd,
  kOr,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};
enum class Comparison : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct StringLiteral {
  Text text;
};
struct Literal {
  Value value;  // None, bool, int, float
};
struct Name {
  std::string name;
};
struct Sequence {
  bool tuple;
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;  // a < b < c
};
struct Conditional {
  ExpressionPtr test, then, otherwise;  // otherwise may be null: undefined
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, key;
};
struct Slice {  // only as the key of an Item
  ExpressionPtr start, stop, step;
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filtered {
  ExpressionPtr input;
  Application filter;
};
struct Tested {
  ExpressionPtr input;
  Application test;
};

struct Expression {
  using Node = std::variant<StringLiteral, Literal, Name, Sequence, DictDisplay, Unary, Binary, Concatenation, Compare,
                            Conditional, Attribute, Item, Slice, Call, Filtered, Tested>;
  Node node;
  std::uint32_t line = 0;
  std::uint32_t depth = 1;
};

struct Statement;
using Body = std::vector<Statement>;

// What is assigned to: a name, an attribute of a namespace, or several in a tuple.
struct Target {
  std::string name;
  std::string attribute;      // not empty: of the namespace `name`
  std::vector<Target> parts;  // not empty or `tuple`: a tuple
  bool tuple = false;
};
struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: none
};
struct MacroDefinition {
  std::string name;  // of a call block: "caller"
  std::vector<Parameter> parameters;
  Body body;
  bool reads_caller = false, reads_varargs = false, reads_kwargs = false;
};

struct Data {
  Text text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, filter;  // filter may be null
  bool recursive = false;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<Application> filters;
  Body body;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  MacroDefinition caller;
};
struct FilterBlock {
  std::vector<Application> filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> names;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  using Node =
      std::variant<Data, Print, If, For, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock, With, Break, Continue>;
  Node node;
  std::uint32_t line = 0;
};

struct Program {
  Body body;
  std::unordered_set<std::string> names;  // that are read somewhere
};

}  // namespace terrace::text::jinja
