#include "coordinator/sampler/grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/grammar/scan.h"
#include "coordinator/sampler/grammar/utf8_ranges.h"

namespace terrace::sampler::grammar {
namespace {

constexpr std::size_t kMaxElements = 100'000;
constexpr std::size_t kMaxRules = 10'000;
constexpr std::string_view kRoot = "root";
constexpr std::string_view kDefines = "::=";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { rule_number(kRoot, 0); }

  Result<Rules> parse() {
    if (text_.size() > Grammar::kMaxTextBytes)
      return error(0, fmt::format("the grammar has {} bytes; allowed are {}", text_.size(), Grammar::kMaxTextBytes));
    for (skip_space(true); !at_end(); skip_space(true)) TERRACE_RETURN_IF_ERROR(parse_rule());
    if (!is_defined_[0])
      return Error(ErrorCode::kInvalidArgument, "the grammar has no rule named root, where texts begin");
    for (std::size_t i = 0; i < rules_.size(); ++i)
      if (!is_defined_[i]) return error(first_use_[i], fmt::format("rule \"{}\" is not defined", names_[i]));
    return std::move(rules_);
  }

 private:
  // ---- reading ------------------------------------------------------------------------------------------------------
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  // Blanks and comments, and line ends if `lines`.
  void skip_space(bool lines) {
    for (; !at_end(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_end() || !lines) return;
      } else if (c == '\n' ? !lines : c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  Error error(std::size_t at, const std::string& why) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = 1 + std::ranges::count(before, '\n');
    const std::string_view last = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
    const auto column = 1 + std::ranges::count_if(last, [](char c) { return (c & 0xC0) != 0x80; });
    return Error(ErrorCode::kInvalidArgument, fmt::format("line {}, column {}: {}", line, column, why)).in("grammar");
  }
  Error error_here(const std::string& why) const { return error(at_, why); }

  // ---- rules --------------------------------------------------------------------------------------------------------
  std::uint32_t rule_number(std::string_view name, std::size_t at) {
    const auto [known, is_new] = numbers_.try_emplace(std::string(name), static_cast<std::uint32_t>(rules_.size()));
    if (is_new) {
      rules_.emplace_back();
      names_.emplace_back(name);
      first_use_.push_back(at);
      is_defined_.push_back(false);
    }
    return known->second;
  }

  std::string_view take_name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Status parse_rule() {
    const std::size_t begin = at_;
    const std::string_view name = take_name();
    if (name.empty()) return error_here("a rule begins with its name, of letters, digits, - and _");
    skip_space(false);
    if (!take(kDefines)) return error_here(fmt::format("::= is missing after the name \"{}\"", name));
    const std::uint32_t number = rule_number(name, begin);
    if (is_defined_[number]) return error(begin, fmt::format("rule \"{}\" is defined a second time", name));
    if (rules_.size() > kMaxRules) return error(begin, fmt::format("there are more than {} rules", kMaxRules));
    is_defined_[number] = true;
    skip_space(true);
    TERRACE_ASSIGN_OR_RETURN(Expression body, parse_alternatives(0));
    rules_[number].body = std::move(body);
    rules_[number].where = error(begin, fmt::format("rule \"{}\"", name)).text();
    if (!at_end() && peek() != '\n') return error_here("this begins no part of a rule; a line ends a rule");
    return {};
  }

  // Whether `|` follows, on one of the next lines too: no rule can begin with it.
  bool take_bar(bool nested) {
    const std::size_t begin = at_;
    skip_space(true);
    if (peek() == '|') {
      ++at_;
      skip_space(true);
      return true;
    }
    if (!nested) at_ = begin;
    return false;
  }

  Result<Expression> parse_alternatives(std::size_t depth) {
    Expression all;
    all.kind = Expression::Kind::kAlternatives;
    do {
      TERRACE_ASSIGN_OR_RETURN(Expression one, parse_sequence(depth));
      all.children.push_back(std::move(one));
    } while (take_bar(depth > 0));
    if (all.children.size() > 1) return all;
    Expression only = std::move(all.children.front());
    return only;
  }

  Result<Expression> parse_sequence(std::size_t depth) {
    Expression all;
    for (;;) {
      const char c = peek();
      const bool begins_element =
          !at_end() && (c == '"' || c == '[' || c == '.' || c == '(' || c == '<' || is_name_character(c));
      if (!begins_element) break;
      if (++n_elements_ > kMaxElements) return error_here(fmt::format("there are more than {} elements", kMaxElements));
      TERRACE_ASSIGN_OR_RETURN(Expression element, parse_element(depth));
      skip_space(depth > 0);
      TERRACE_RETURN_IF_ERROR(parse_repetitions(element, depth));
      all.children.push_back(std::move(element));
    }
    if (all.children.size() != 1) return all;
    Expression only = std::move(all.children.front());
    return only;
  }

  Result<Expression> parse_element(std::size_t depth) {
    const std::size_t begin = at_;
    if (take("\"")) return parse_literal(begin);
    if (take("[")) return parse_class(begin);
    if (take(".")) return characters({{0, kLastCodePoint}});
    if (take("<"))
      return error(begin, "token references (<...>) are not supported: write the token's text as a literal");
    if (take("(")) {
      if (depth == Grammar::kMaxNesting)
        return error(begin, fmt::format("groups are nested deeper than {}", Grammar::kMaxNesting));
      skip_space(true);
      TERRACE_ASSIGN_OR_RETURN(Expression inner, parse_alternatives(depth + 1));
      skip_space(true);
      if (!take(")"))
        return at_end() ? error(begin, "this group is not closed") : error_here("this begins no part of a group");
      return inner;
    }
    return rule_call(rule_number(take_name(), begin));
  }

  // ---- repetitions --------------------------------------------------------------------------------------------------
  Status parse_repetitions(Expression& element, std::size_t depth) {
    constexpr int kMaxInARow = 3;
    for (int n = 0;; ++n) {
      const std::size_t begin = at_;
      std::uint32_t min = 0, max = kUnlimited;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        TERRACE_RETURN_IF_ERROR(parse_bounds(begin, min, max));
      } else if (!take("*")) {
        return {};
      }
      if (n == kMaxInARow)
        return error(begin, fmt::format("more than {} repetitions of one thing: use a group", kMaxInARow));
      element = repeat(std::move(element), min, max);
      skip_space(depth > 0);
    }
  }

  // {m}, {m,} or {m,n}, behind the brace.
  Status parse_bounds(std::size_t begin, std::uint32_t& min, std::uint32_t& max) {
    skip_space(false);
    TERRACE_ASSIGN_OR_RETURN(min, parse_number());
    max = min;
    skip_space(false);
    if (take(",")) {
      skip_space(false);
      max = kUnlimited;
      if (peek() != '}') {
        TERRACE_ASSIGN_OR_RETURN(max, parse_number());
      }
      skip_space(false);
    }
    if (!take("}")) return error_here("the repetition is not closed: write {m}, {m,} or {m,n}");
    if (max < min) return error(begin, fmt::format("at least {} times and at most {}", min, max));
    return {};
  }

  Result<std::uint32_t> parse_number() {
    const std::size_t begin = at_;
    std::uint32_t value = 0;
    for (; is_digit(peek()); ++at_)
      value = std::min(value * 10 + static_cast<std::uint32_t>(text_[at_] - '0'), Grammar::kMaxRepetition + 1);
    if (at_ == begin) return error(begin, "a number of times is missing: write {m}, {m,} or {m,n}");
    if (value > Grammar::kMaxRepetition)
      return error(begin,
                   fmt::format("repeated {} times; allowed are {}",
                               text_.substr(begin, std::min<std::size_t>(at_ - begin, 20)), Grammar::kMaxRepetition));
    return value;
  }

  // ---- characters ---------------------------------------------------------------------------------------------------
  Result<Expression> parse_literal(std::size_t begin) {
    std::string text;
    while (!take("\"")) {
      if (at_end()) return error(begin, "this literal is not closed");
      TERRACE_ASSIGN_OR_RETURN(const char32_t c, parse_character());
      append_utf8(text, c);
    }
    return literal(std::move(text));
  }

  Result<Expression> parse_class(std::size_t begin) {
    const bool is_negated = take("^");
    std::vector<CodePointRange> ranges;
    while (!take("]")) {
      if (at_end()) return error(begin, "this character class is not closed");
      const std::size_t at = at_;
      CodePointRange range;
      TERRACE_ASSIGN_OR_RETURN(range.first, parse_character());
      range.last = range.first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        TERRACE_ASSIGN_OR_RETURN(range.last, parse_character());
      }
      if (range.last < range.first) return error(at, "this range ends before it begins");
      ranges.push_back(range);
    }
    ranges = is_negated ? complement(std::move(ranges)) : normalised(std::move(ranges));
    if (ranges.empty()) return error(begin, "no character is in this class");
    return characters(std::move(ranges));
  }

  Result<char32_t> parse_character() {
    if (peek() == '\\') return parse_escape();
    const std::optional<char32_t> c = take_code_point(text_, at_);
    if (!c) return error_here("this is not UTF-8");
    return *c;
  }

  Result<char32_t> parse_escape() {
    const std::size_t begin = at_++;
    constexpr std::string_view kNames = "nrt\\\"[]-^";
    constexpr std::string_view kMeanings = "\n\r\t\\\"[]-^";
    const char c = peek();
    const std::size_t name = at_end() ? std::string_view::npos : kNames.find(c);
    if (name != std::string_view::npos) {
      ++at_;
      return static_cast<char32_t>(kMeanings[name]);
    }
    const std::size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits == 0)
      return error(begin,
                   "this is no escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
    ++at_;
    const std::optional<std::uint32_t> value = take_hexadecimal(text_, at_, n_digits);
    if (!value) return error(begin, fmt::format("\\{} takes {} hexadecimal digits", c, n_digits));
    if (!is_character(*value)) return error(begin, fmt::format("U+{:04X} is no character", *value));
    return static_cast<char32_t>(*value);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t n_elements_ = 0;
  Rules rules_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> names_;      // by rule
  std::vector<std::size_t> first_use_;  // by rule: offset
  std::vector<bool> is_defined_;        // by rule
};

}  // namespace

Result<Rules> parse_gbnf(std::string_view text) { return Parser(text).parse(); }

}  // namespace terrace::sampler::grammar
