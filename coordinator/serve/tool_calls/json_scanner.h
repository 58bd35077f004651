// Tells byte by byte where a JSON value ends, and at once when it can be none any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::serve::tool_calls {

// One value of RFC 8259 that begins with its first byte or with white space. Threads: one stream, one thread.
class JsonScanner {
 public:
  // Arrays and objects within one another; deeper is kBad.
  static constexpr std::size_t kMaxDepth = 64;

  enum class State {
    kValue,      // a value must begin
    kFirstItem,  // of an array: a value, or its end
    kFirstKey,   // of an object: a key, or its end
    kKey,        // a key must begin
    kColon,
    kAfterValue,  // a comma, or the end of what is open
    kString,      // within a string
    kEscape,
    kHex,  // of \uXXXX
    kNumber,
    kLiteral,  // true, false, null
    kDone,     // the outermost array, object, string or literal is complete; further bytes are kBad
    kBad,
  };

  // Takes one byte and returns the state after it. A number at the outermost level has no end of its own.
  State feed(char byte);
  State state() const { return state_; }
  // Arrays and objects that are open.
  std::size_t depth() const { return open_.size(); }
  // In kString, kEscape and kHex: the string is a key.
  bool in_key() const { return key_; }

 private:
  enum class Number : std::uint8_t { kMinus, kZero, kInteger, kPoint, kFraction, kExponent, kSign, kPower };
  State value(char byte);
  State number(char byte);
  State after_value(char byte);
  State in_string(char byte);
  State open(char byte);
  State close(char byte);
  State end_value();

  State state_ = State::kValue;
  std::vector<char> open_;  // the '{' and '[' that are open
  bool key_ = false;
  Number number_ = Number::kMinus;
  const char* literal_ = "";  // what must still come of it
  int hex_digits_ = 0;        // that must still come
};

}  // namespace terrace::serve::tool_calls
