// What Python's operators do with values. All throw Failure where Python raises, in its words.
#pragma once

#include <compare>
#include <cstddef>
#include <vector>

#include "coordinator/text/jinja/syntax.h"
#include "coordinator/text/jinja/value.h"

namespace terrace::text::jinja {

bool truth(const Value& value);
bool equal(Heap& heap, const Value& a, const Value& b);
// `a op b`, op only named in the message. unordered: one is NaN.
std::partial_ordering order(Heap& heap, const Value& a, const Value& b, const char* op = "<");
bool compare(Heap& heap, Comparison how, const Value& a, const Value& b);
bool contains(Heap& heap, const Value& all, const Value& one);

Value arithmetic(Heap& heap, BinaryOperator op, const Value& a, const Value& b);  // neither kAnd nor kOr
Value add(Heap& heap, const Value& a, const Value& b);
Value negative(Heap& heap, UnaryOperator op, const Value& a);  // kMinus, kPlus

// The items of what can be looped over: characters of a text, keys of an object. A generator is spent by it.
std::vector<Value> items_of(Heap& heap, const Value& value);
// len()
std::size_t length(const Value& value);

}  // namespace terrace::text::jinja
