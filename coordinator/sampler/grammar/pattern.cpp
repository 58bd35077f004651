#include "coordinator/sampler/grammar/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/grammar/json_text.h"
#include "coordinator/sampler/grammar/scan.h"

namespace terrace::sampler::grammar {
namespace {

using Ranges = std::vector<CodePointRange>;

constexpr std::size_t kMaxPatternBytes = 2'000;

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// WhiteSpace and LineTerminator of ECMA-262.
const Ranges kSpace = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                       {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Expression> parse() {
    if (text_.size() > kMaxPatternBytes)
      return invalid(0, fmt::format("it has {} bytes; allowed are {}", text_.size(), kMaxPatternBytes));
    TERRACE_ASSIGN_OR_RETURN(Expression all, parse_alternatives(0));
    if (at_ < text_.size()) return invalid(at_, "this group is not open");
    return all;
  }

 private:
  Error invalid(std::size_t at, std::string_view why) const {
    return Error(ErrorCode::kInvalidArgument, fmt::format("at byte {}: {}", at, why));
  }
  Error unsupported(std::size_t at, std::string_view what) const {
    return Error(ErrorCode::kUnsupported, fmt::format("at byte {}: {} cannot be held", at, what));
  }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  Result<Expression> parse_alternatives(std::size_t depth) {
    Expression all;
    all.kind = Expression::Kind::kAlternatives;
    do {
      TERRACE_ASSIGN_OR_RETURN(Expression one, parse_sequence(depth));
      all.children.push_back(std::move(one));
    } while (take("|"));
    return all;
  }

  // Outside of groups a pattern is found anywhere in the string.
  Result<Expression> parse_sequence(std::size_t depth) {
    const Expression anything = repeat(string_character(), 0, kUnlimited);
    Expression all;
    if (depth == 0 && !take("^")) all.children.push_back(anything);
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$' && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
        ++at_;
        return all;
      }
      TERRACE_ASSIGN_OR_RETURN(Expression atom, parse_atom(depth));
      TERRACE_RETURN_IF_ERROR(parse_quantifier(atom));
      all.children.push_back(std::move(atom));
    }
    if (depth == 0) all.children.push_back(anything);
    return all;
  }

  Result<Expression> parse_atom(std::size_t depth) {
    const std::size_t begin = at_;
    if (take("(")) return parse_group(begin, depth);
    if (take("[")) {
      TERRACE_ASSIGN_OR_RETURN(const Ranges ranges, parse_class(begin));
      return encoded(ranges, begin);
    }
    if (take(".")) return encoded(complement(kLineEnds), begin);
    if (take("\\")) {
      TERRACE_ASSIGN_OR_RETURN(const Ranges ranges, parse_escape(begin));
      return encoded(ranges, begin);
    }
    if (peek() == '^' || peek() == '$') return unsupported(at_, "an anchor inside a pattern");
    if (std::string_view("*+?{}]").find(peek()) != std::string_view::npos)
      return invalid(at_, fmt::format("'{}' has nothing before it: write \\{}", peek(), peek()));
    const std::optional<char32_t> c = take_code_point(text_, at_);
    if (!c) return invalid(begin, "this is not UTF-8");
    return encoded({{*c, *c}}, begin);
  }

  Result<Expression> parse_group(std::size_t begin, std::size_t depth) {
    if (depth == Grammar::kMaxNesting)
      return invalid(begin, fmt::format("groups are nested deeper than {}", Grammar::kMaxNesting));
    if (peek() == '?' && !take("?:")) return unsupported(begin, "lookaround or a named group");
    TERRACE_ASSIGN_OR_RETURN(Expression inner, parse_alternatives(depth + 1));
    if (!take(")")) return invalid(begin, "this group is not closed");
    return inner;
  }

  Result<Expression> encoded(const Ranges& ranges, std::size_t at) const {
    Expression e = encoded_character(ranges);
    if (e.children.empty()) return invalid(at, "no character is in this class");
    return e;
  }

  Status parse_quantifier(Expression& atom) {
    const std::size_t begin = at_;
    std::uint32_t min = 0, max = kUnlimited;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      TERRACE_ASSIGN_OR_RETURN(min, parse_number());
      max = min;
      if (take(",")) {
        max = kUnlimited;
        if (peek() != '}') {
          TERRACE_ASSIGN_OR_RETURN(max, parse_number());
        }
      }
      if (!take("}") || max < min) return invalid(begin, "write {m}, {m,} or {m,n}, n not below m");
    } else if (!take("*")) {
      return {};
    }
    take("?");  // lazy: the same texts
    atom = repeat(std::move(atom), min, max);
    return {};
  }

  Result<std::uint32_t> parse_number() {
    const std::size_t begin = at_;
    std::uint32_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min(value * 10 + static_cast<std::uint32_t>(peek() - '0'), Grammar::kMaxRepetition + 1);
    if (at_ == begin) return invalid(begin, "a number of times is missing");
    if (value > Grammar::kMaxRepetition)
      return invalid(begin, fmt::format("repeated more than {} times", Grammar::kMaxRepetition));
    return value;
  }

  // Behind the bracket.
  Result<Ranges> parse_class(std::size_t begin) {
    const bool is_negated = take("^");
    Ranges ranges;
    while (!take("]")) {
      if (at_end()) return invalid(begin, "this class is not closed");
      const std::size_t at = at_;
      TERRACE_ASSIGN_OR_RETURN(Ranges item, parse_class_item());
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        TERRACE_ASSIGN_OR_RETURN(const Ranges last, parse_class_item());
        if (!is_single(item) || !is_single(last)) return invalid(at, "a range goes from one character to another");
        if (last[0].first < item[0].first) return invalid(at, "this range ends before it begins");
        item[0].last = last[0].first;
      }
      ranges.insert(ranges.end(), item.begin(), item.end());
    }
    return is_negated ? complement(std::move(ranges)) : normalised(std::move(ranges));
  }

  static bool is_single(const Ranges& ranges) { return ranges.size() == 1 && ranges[0].first == ranges[0].last; }

  Result<Ranges> parse_class_item() {
    const std::size_t begin = at_;
    if (take("\\")) {
      if (take("b")) return Ranges{{'\b', '\b'}};
      return parse_escape(begin);
    }
    const std::optional<char32_t> c = take_code_point(text_, at_);
    if (!c) return invalid(begin, "this is not UTF-8");
    return Ranges{{*c, *c}};
  }

  // Behind the backslash.
  Result<Ranges> parse_escape(std::size_t begin) {
    if (at_end()) return invalid(begin, "a backslash has nothing behind it");
    const char c = text_[at_++];
    const auto single = [](char32_t value) { return Ranges{{value, value}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'x':
      case 'u': {
        const std::optional<std::uint32_t> value = take_hexadecimal(text_, at_, c == 'x' ? 2 : 4);
        if (!value) return invalid(begin, "\\x takes 2 hexadecimal digits, \\u takes 4");
        if (!is_character(*value)) return unsupported(begin, "a surrogate");
        return single(*value);
      }
      default:
        if (std::string_view("^$\\.*+?()[]{}|/-").find(c) != std::string_view::npos)
          return single(static_cast<char32_t>(c));
        return unsupported(begin, "this escape");
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<Expression> pattern_text(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace terrace::sampler::grammar
