// What both notations are read into: rules over expressions, before they become an automaton.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace terrace::sampler::grammar {

// Inclusive.
struct CodePointRange {
  char32_t first = 0;
  char32_t last = 0;
};
inline constexpr char32_t kLastCodePoint = 0x10FFFF;

inline constexpr std::uint32_t kUnlimited = ~std::uint32_t{0};

// A set of texts.
struct Expression {
  enum class Kind : std::uint8_t {
    kSequence,      // one of each child, in order; without children the empty text
    kLiteral,       // `text`, UTF-8
    kCharacters,    // one character of `ranges`; surrogates in them stand for nothing
    kAlternatives,  // one of the children
    kRepeat,        // children[0], `min` to `max` times
    kRule,          // what rule number `rule` is
    kMembers,  // children[1], children[2], ... in order, children[0] between any two; those that are `optional` may
               // be left out
  };
  Kind kind = Kind::kSequence;
  bool optional = false;  // of a child of kMembers
  std::uint32_t min = 1;
  std::uint32_t max = 1;  // or kUnlimited
  std::uint32_t rule = 0;
  std::string text;
  std::vector<CodePointRange> ranges;
  std::vector<Expression> children;
};

// kRepeat with these needs no counter.
inline bool is_star(const Expression& e) { return e.min == 0 && e.max == kUnlimited; }
inline bool is_plus(const Expression& e) { return e.min == 1 && e.max == kUnlimited; }

inline Expression literal(std::string text) {
  Expression e;
  e.kind = Expression::Kind::kLiteral;
  e.text = std::move(text);
  return e;
}
inline Expression characters(std::vector<CodePointRange> ranges) {
  Expression e;
  e.kind = Expression::Kind::kCharacters;
  e.ranges = std::move(ranges);
  return e;
}
inline Expression rule_call(std::uint32_t rule) {
  Expression e;
  e.kind = Expression::Kind::kRule;
  e.rule = rule;
  return e;
}
inline Expression with_children(Expression::Kind kind, std::vector<Expression> children) {
  Expression e;
  e.kind = kind;
  e.children = std::move(children);
  return e;
}
template <class... Parts>
Expression sequence(Parts... parts) {
  Expression e;
  (e.children.push_back(std::move(parts)), ...);
  return e;
}
template <class... Parts>
Expression alternatives(Parts... parts) {
  Expression e = sequence(std::move(parts)...);
  e.kind = Expression::Kind::kAlternatives;
  return e;
}
inline Expression repeat(Expression body, std::uint32_t min, std::uint32_t max) {
  Expression e = sequence(std::move(body));
  e.kind = Expression::Kind::kRepeat;
  e.min = min;
  e.max = max;
  return e;
}

// Sorted, disjoint, not adjacent.
std::vector<CodePointRange> normalised(std::vector<CodePointRange> ranges);
// All other code points, normalised.
std::vector<CodePointRange> complement(std::vector<CodePointRange> ranges);

struct Rule {
  std::string where;  // for messages: `grammar: line 3, column 1: rule "list"`
  Expression body;
  bool stays_whole = false;  // is called wherever it stands, never copied there: what many share is followed once
};

// rules[0] is the whole text.
using Rules = std::vector<Rule>;

}  // namespace terrace::sampler::grammar
