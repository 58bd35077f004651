#include "coordinator/text/jinja/percent_format.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "coordinator/text/jinja/strings.h"
#include "coordinator/text/jinja/unicode.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {
namespace {

constexpr std::int64_t kMostWidth = 100'000;  // of one conversion; the whole is bounded by the values' limit

struct Conversion {
  bool left = false, zero = false, plus = false, space = false, alternative = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char letter = 's';
};

class Formatter {
 public:
  Formatter(Heap& heap, const Text& format, const Value& values) : heap_(heap), format_(format), values_(values) {}

  Text run() {
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const std::size_t percent = std::min(find_first(heap_, bytes, "%", at_), bytes.size());
      out_.append(format_.slice(at_, percent));
      at_ = percent + 1;
      if (percent < bytes.size()) conversion();
    }
    if (used_ < must_be_used()) refuse("not all arguments converted during string formatting");
    out_.set_markup(format_.markup());
    return std::move(out_);
  }

 private:
  // What has items counts as an object of names, and may go unused.
  std::size_t must_be_used() const {
    if (values_.is(Kind::kDict) || values_.is_undefined()) return 0;
    if (!values_.is(Kind::kList)) return 1;
    switch (values_.list().form) {
      case List::Form::kTuple:
        return values_.list().items.size();
      case List::Form::kList:
      case List::Form::kRange:
        return 0;
      default:
        return 1;
    }
  }

  char peek() const { return at_ < format_.size() ? format_.bytes()[at_] : '\0'; }

  Value next_value() {
    if (values_.is(Kind::kList) && values_.list().form == List::Form::kTuple) {
      if (used_ >= values_.list().items.size()) refuse("not enough arguments for format string");
      return values_.list().items[used_++];
    }
    if (used_++ > 0) refuse("not enough arguments for format string");
    return values_;
  }

  std::int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_value();
      if (!value.is_integral()) refuse("* wants int");
      return checked(value.integer());
    }
    std::int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) n = checked(n * 10 + (peek() - '0'));
    return n;
  }
  static std::int64_t checked(std::int64_t n) {
    if (n > kMostWidth || n < -kMostWidth)
      over_limit(fmt::format("a conversion of % is wider than {} characters (limit: width)", kMostWidth));
    return n;
  }

  void conversion() {
    std::optional<Value> named;
    if (peek() == '(') named = named_value();
    Conversion how;
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          how.left = true;
          break;
        case '0':
          how.zero = true;
          break;
        case '+':
          how.plus = true;
          break;
        case ' ':
          how.space = true;
          break;
        case '#':
          how.alternative = true;
          break;
        default:
          more = false;
      }
      if (more) ++at_;
    }
    how.width = number();
    if (how.width < 0) {
      how.left = true;
      how.width = -how.width;
    }
    if (peek() == '.') {
      ++at_;
      how.precision = std::max<std::int64_t>(number(), 0);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    if (at_ >= format_.size()) refuse("incomplete format");
    how.letter = peek();
    ++at_;
    if (how.letter == '%') return out_.append("%");
    padded(how, converted(how, named ? *named : next_value()));
  }

  Value named_value() {
    const std::string& bytes = format_.bytes();
    const std::size_t end = bytes.find(')', at_);
    if (end == std::string::npos) refuse("incomplete format key");
    if (!values_.is(Kind::kDict)) refuse("format requires a mapping");
    const std::string name = bytes.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const Value* const value = values_.dict().find("s" + name);
    if (value == nullptr) refuse(fmt::format("'{}'", name));
    return *value;
  }

  Text converted(const Conversion& how, const Value& value) {
    switch (how.letter) {
      case 's':
      case 'r': {
        Text text = how.letter == 's' ? text_of(heap_, value) : repr_of(heap_, value);
        if (how.precision >= 0)
          text = text.slice(0, offset_of_character(text.bytes(), static_cast<std::size_t>(how.precision)));
        // Into markup goes what is markup, or is made so.
        return format_.markup() && !text.markup() ? escaped(text) : text;
      }
      case 'c':
        return character(value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return Text(integer(how, value));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return Text(real(how, value));
      default:
        refuse(fmt::format("unsupported format character '{}'", how.letter));
    }
  }

  Text character(const Value& value) {
    if (value.is_string() && count_characters(value.bytes()) == 1) return value.text();
    if (!value.is_integral()) refuse("%c requires int or char");
    const std::int64_t c = value.integer();
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) refuse("%c arg not in range(0x110000)");
    std::string bytes;
    append_character(bytes, static_cast<char32_t>(c));
    return Text(std::move(bytes));
  }

  static std::string sign_of(const Conversion& how, bool negative) {
    return negative ? "-" : how.plus ? "+" : how.space ? " " : "";
  }

  static std::string integer(const Conversion& how, const Value& value) {
    const bool decimal = how.letter == 'd' || how.letter == 'i' || how.letter == 'u';
    if (!value.is_number() || (!decimal && !value.is_integral()))
      refuse(fmt::format("%{} format: {} is required, not {}", how.letter, decimal ? "a real number" : "an integer",
                         type_name(value)));
    std::int64_t n = 0;
    if (value.is_integral()) {
      n = value.integer();
    } else {
      if (!(std::fabs(value.number()) < 0x1p63)) not_here("a number beyond 64 bits is formatted as an integer");
      n = static_cast<std::int64_t>(value.number());
    }
    const std::uint64_t size = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
    std::string digits = how.letter == 'x'   ? fmt::format("{:x}", size)
                         : how.letter == 'X' ? fmt::format("{:X}", size)
                         : how.letter == 'o' ? fmt::format("{:o}", size)
                                             : fmt::format("{}", size);
    if (how.precision > static_cast<std::int64_t>(digits.size()))
      digits.insert(0, static_cast<std::size_t>(how.precision) - digits.size(), '0');
    std::string head = sign_of(how, n < 0);
    if (how.alternative && !decimal) head += std::string("0") + how.letter;
    return zeros(how, std::move(head), std::move(digits));
  }

  static std::string real(const Conversion& how, const Value& value) {
    if (!value.is_number()) refuse(fmt::format("must be real number, not {}", type_name(value)));
    const double n = value.number();
    const char form[] = {'%', how.alternative ? '#' : '-', '.', '*', how.letter, '\0'};
    const int precision = how.precision < 0 ? 6 : static_cast<int>(how.precision);
    const int size = std::snprintf(nullptr, 0, form, precision, std::fabs(n));
    std::string digits(static_cast<std::size_t>(size) + 1, '\0');
    (void)std::snprintf(digits.data(), digits.size(), form, precision, std::fabs(n));
    digits.pop_back();
    return zeros(how, sign_of(how, std::signbit(n) && !std::isnan(n)), std::move(digits));
  }

  // The flag 0: up to the width, between sign and digits.
  static std::string zeros(const Conversion& how, std::string head, std::string digits) {
    const std::size_t size = head.size() + digits.size();
    if (how.zero && !how.left && static_cast<std::size_t>(how.width) > size)
      head.append(static_cast<std::size_t>(how.width) - size, '0');
    return head + digits;
  }

  void padded(const Conversion& how, const Text& text) {
    const std::size_t size = count_characters(text.bytes());
    const std::size_t width = static_cast<std::size_t>(how.width);
    const std::string spaces(width > size ? width - size : 0, ' ');
    heap_.charge(spaces.size() + text.size());
    if (!how.left) out_.append(spaces);
    out_.append(text);
    if (how.left) out_.append(spaces);
  }

  Heap& heap_;
  const Text& format_;
  const Value& values_;
  Text out_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

Text percent_format(Heap& heap, const Text& format, const Value& values) {
  return Formatter(heap, format, values).run();
}

}  // namespace terrace::text::jinja
