#include "coordinator/serve/tool_calls/json_scanner.h"

#include <string_view>

namespace terrace::serve::tool_calls {
namespace {

bool is_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_hex(char byte) { return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F'); }

}  // namespace

JsonScanner::State JsonScanner::end_value() { return open_.empty() ? State::kDone : State::kAfterValue; }

JsonScanner::State JsonScanner::open(char byte) {
  if (open_.size() == kMaxDepth) return State::kBad;
  open_.push_back(byte);
  return byte == '{' ? State::kFirstKey : State::kFirstItem;
}

JsonScanner::State JsonScanner::close(char byte) {
  const char opened = byte == '}' ? '{' : '[';
  if (open_.empty() || open_.back() != opened) return State::kBad;
  open_.pop_back();
  return end_value();
}

JsonScanner::State JsonScanner::value(char byte) {
  const auto literal = [this](const char* rest) {
    literal_ = rest;
    return State::kLiteral;
  };
  key_ = false;
  switch (byte) {
    case '{':
    case '[':
      return open(byte);
    case '"':
      return State::kString;
    case 't':
      return literal("rue");
    case 'f':
      return literal("alse");
    case 'n':
      return literal("ull");
    case '-':
      number_ = Number::kMinus;
      return State::kNumber;
    default:
      if (!is_digit(byte)) return State::kBad;
      number_ = byte == '0' ? Number::kZero : Number::kInteger;
      return State::kNumber;
  }
}

JsonScanner::State JsonScanner::number(char byte) {
  const auto go = [this](Number next) {
    number_ = next;
    return State::kNumber;
  };
  const bool digit = is_digit(byte);
  const bool exponent = byte == 'e' || byte == 'E';
  switch (number_) {
    case Number::kMinus:
      if (!digit) return State::kBad;
      return go(byte == '0' ? Number::kZero : Number::kInteger);
    case Number::kInteger:
      if (digit) return State::kNumber;
      [[fallthrough]];
    case Number::kZero:
      if (byte == '.') return go(Number::kPoint);
      if (exponent) return go(Number::kExponent);
      break;
    case Number::kPoint:
      return digit ? go(Number::kFraction) : State::kBad;
    case Number::kFraction:
      if (digit) return State::kNumber;
      if (exponent) return go(Number::kExponent);
      break;
    case Number::kExponent:
      if (byte == '+' || byte == '-') return go(Number::kSign);
      [[fallthrough]];
    case Number::kSign:
      return digit ? go(Number::kPower) : State::kBad;
    case Number::kPower:
      if (digit) return State::kNumber;
      break;
  }
  // The number is over; this byte belongs to what follows.
  return open_.empty() ? State::kBad : after_value(byte);
}

JsonScanner::State JsonScanner::after_value(char byte) {
  if (is_space(byte)) return State::kAfterValue;
  if (byte == ',') return open_.back() == '{' ? State::kKey : State::kValue;
  return byte == '}' || byte == ']' ? close(byte) : State::kBad;
}

JsonScanner::State JsonScanner::in_string(char byte) {
  if (byte == '\\') return State::kEscape;
  if (byte == '"') return key_ ? State::kColon : end_value();
  return static_cast<unsigned char>(byte) < 0x20 ? State::kBad : State::kString;
}

JsonScanner::State JsonScanner::feed(char byte) {
  const auto step = [&]() -> State {
    switch (state_) {
      case State::kValue:
        return is_space(byte) ? state_ : value(byte);
      case State::kFirstItem:
        if (is_space(byte)) return state_;
        return byte == ']' ? close(byte) : value(byte);
      case State::kFirstKey:
        if (byte == '}') return close(byte);
        [[fallthrough]];
      case State::kKey:
        if (is_space(byte)) return state_;
        key_ = true;
        return byte == '"' ? State::kString : State::kBad;
      case State::kColon:
        if (is_space(byte)) return state_;
        return byte == ':' ? State::kValue : State::kBad;
      case State::kAfterValue:
        return after_value(byte);
      case State::kString:
        return in_string(byte);
      case State::kEscape:
        hex_digits_ = 4;
        if (byte == 'u') return State::kHex;
        return std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos ? State::kBad : State::kString;
      case State::kHex:
        if (!is_hex(byte)) return State::kBad;
        return --hex_digits_ == 0 ? State::kString : State::kHex;
      case State::kNumber:
        return number(byte);
      case State::kLiteral:
        if (byte != *literal_) return State::kBad;
        return *++literal_ == '\0' ? end_value() : State::kLiteral;
      case State::kDone:
      case State::kBad:
        break;
    }
    return State::kBad;
  };
  state_ = step();
  return state_;
}

}  // namespace terrace::serve::tool_calls
