#include "coordinator/text/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "coordinator/text/jinja/failure.h"
#include "coordinator/text/jinja/string_literal.h"
#include "coordinator/text/jinja/unicode.h"

namespace terrace::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Lines end with \n, and the last is not ended.
std::string with_plain_line_ends(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool first_of_two = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!first_of_two) out.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_line_ends(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (at_ < rest_.size()) data();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag : char { kBlock = '%', kVariable = '{', kComment = '#' };

  // ---- text up to the next tag, and the tag
  void data() {
    const std::size_t begin = find_tag();
    if (begin == std::string_view::npos) {
      add_data(rest_.substr(at_));
      move_to(rest_.size());
      return;
    }
    const auto tag = static_cast<Tag>(rest_[begin + 1]);
    const char sign = sign_at(begin + 2);
    add_data(before_tag(begin, sign, tag));
    const std::uint32_t tag_line = line_ + lines_in(at_, begin);
    if (const std::size_t raw_end = tag == Tag::kBlock ? raw_tag_end(begin) : std::string_view::npos;
        raw_end != std::string_view::npos) {
      move_to(raw_end);
      raw(tag_line);
      return;
    }
    move_to(begin + 2 + (sign != 0 ? 1 : 0));
    if (tag == Tag::kComment) {
      comment(tag_line);
    } else {
      add(tag == Tag::kBlock ? Token::Kind::kBlockBegin : Token::Kind::kVariableBegin, "");
      inside(tag);
    }
  }

  std::size_t find_tag() const {
    for (std::size_t at = at_; (at = rest_.find('{', at)) != std::string_view::npos && at + 1 < rest_.size(); ++at)
      if (rest_[at + 1] == '%' || rest_[at + 1] == '{' || rest_[at + 1] == '#') return at;
    return std::string_view::npos;
  }

  char sign_at(std::size_t at) const { return peek(at) == '-' || peek(at) == '+' ? peek(at) : 0; }

  // The text before a tag, less what its minus sign or lstrip_blocks takes.
  std::string_view before_tag(std::size_t begin, char sign, Tag tag) const {
    std::string_view text = rest_.substr(at_, begin - at_);
    if (sign == '-') {
      text.remove_suffix(ends_to_strip(text, std::nullopt).right);
      // A text of white space alone counts as its left end.
      if (ends_to_strip(text, std::nullopt).left == text.size()) text = {};
    } else if (sign != '+' && tag != Tag::kVariable) {
      const std::size_t line_begin = text.rfind('\n') + 1;
      if ((line_begin > 0 || line_starting_) && spaces_end(text, line_begin) == text.size())
        text = text.substr(0, line_begin);
    }
    return text;
  }

  void comment(std::uint32_t begin_line) {
    const std::size_t end = rest_.find("#}", at_);
    if (end == std::string_view::npos) syntax_error(begin_line, "a comment is not closed: #} is missing");
    const char sign = end > at_ ? sign_at(end - 1) : 0;
    move_to(behind_tag_end(end, sign));
  }

  // ---- {% raw %} ... {% endraw %}
  // Where `{% raw %}` that begins at `begin` ends; npos: it is another tag.
  std::size_t raw_tag_end(std::size_t begin) const {
    std::size_t at = word_in_tag(begin, "raw");
    if (at == std::string_view::npos) return at;
    if (rest_.substr(at).starts_with("-%}")) return spaces_end(rest_, at + 3);
    return rest_.substr(at).starts_with("%}") ? at + 2 : std::string_view::npos;
  }

  // Behind `{%`, a sign, spaces, the word and spaces; npos: something else is there.
  std::size_t word_in_tag(std::size_t begin, std::string_view word) const {
    std::size_t at = spaces_end(rest_, begin + 2 + (sign_at(begin + 2) != 0 ? 1 : 0));
    if (!rest_.substr(at).starts_with(word)) return std::string_view::npos;
    return spaces_end(rest_, at + word.size());
  }

  void raw(std::uint32_t begin_line) {
    for (std::size_t at = at_; (at = rest_.find("{%", at)) != std::string_view::npos; ++at) {
      const std::size_t word_end = word_in_tag(at, "endraw");
      if (word_end == std::string_view::npos) continue;
      const char sign = sign_at(word_end);
      const std::size_t end = word_end + (sign != 0 ? 1 : 0);
      if (!rest_.substr(end).starts_with("%}")) continue;
      add_data(before_tag(at, sign_at(at + 2), Tag::kBlock));
      move_to(behind_tag_end(end, sign));
      return;
    }
    syntax_error(begin_line, "a raw block is not closed: {% endraw %} is missing");
  }

  // ---- between the ends of a tag
  void inside(Tag tag) {
    const std::uint32_t begin_line = line_;
    while (at_ < rest_.size()) {
      if (brackets_.empty() && tag_ends(tag)) return;
      if (const std::size_t spaces = spaces_end(rest_, at_); spaces != at_)
        move_to(spaces);
      else
        token();
    }
    syntax_error(begin_line, tag == Tag::kBlock ? "a statement is not closed: %} is missing"
                                                : "an expression is not closed: }} is missing");
  }

  bool tag_ends(Tag tag) {
    const char* const mark = tag == Tag::kBlock ? "%}" : "}}";
    const char c = peek(at_);
    const char sign = c == '-' || (c == '+' && tag == Tag::kBlock) ? c : 0;
    const std::size_t end = at_ + (sign != 0 ? 1 : 0);
    if (!rest_.substr(end).starts_with(mark)) return false;
    add(tag == Tag::kBlock ? Token::Kind::kBlockEnd : Token::Kind::kVariableEnd, "");
    move_to(tag == Tag::kBlock || sign != 0 ? behind_tag_end(end, sign) : end + 2);
    return true;
  }

  // Behind the two characters at `end`, and the white space that goes with them: all of it after a minus sign, else
  // one line end (trim_blocks), none after a plus sign.
  std::size_t behind_tag_end(std::size_t end, char sign) const {
    if (sign == '-') return spaces_end(rest_, end + 2);
    return end + 2 + (sign == 0 && peek(end + 2) == '\n' ? 1 : 0);
  }

  void token() {
    const char c = rest_[at_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    if (is_word(character_at(rest_, at_))) {
      std::size_t end = at_;
      while (end < rest_.size() && is_word(character_at(rest_, end))) end += character_bytes(rest_[end]);
      return take(Token::Kind::kName, end);
    }
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      if (!rest_.substr(at_).starts_with(op)) continue;
      balance(op);
      return take(Token::Kind::kOperator, at_ + op.size());
    }
    syntax_error(line_, fmt::format("unexpected character {}", rest_.substr(at_, character_bytes(c))));
  }

  // Within brackets }} and %} close no tag.
  void balance(std::string_view op) {
    constexpr std::string_view kOpen = "{([", kClose = "})]";
    if (const std::size_t opens = kOpen.find(op); opens < kClose.size()) brackets_.push_back(kClose[opens]);
    if (op.size() != 1 || kClose.find(op) == std::string_view::npos) return;
    if (brackets_.empty()) syntax_error(line_, fmt::format("unexpected '{}'", op));
    if (brackets_.back() != op.front())
      syntax_error(line_, fmt::format("unexpected '{}', expected '{}'", op, brackets_.back()));
    brackets_.pop_back();
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) syntax_error(line_, "a string is not closed");
    add(Token::Kind::kString, decode_string_literal(rest_.substr(at_ + 1, end - at_ - 1), line_));
    move_to(end + 1);
  }

  // Digits, single underscores between them.
  std::size_t digits_end(std::size_t at) const {
    while (is_digit(peek(at)) || (peek(at) == '_' && is_digit(peek(at + 1)))) ++at;
    return at;
  }

  void number() {
    std::size_t end = digits_end(at_);
    bool real = false;
    // Behind a dot it is an index: x.0.5 has two.
    if (at_ == 0 || rest_[at_ - 1] != '.') {
      if (peek(end) == '.' && is_digit(peek(end + 1))) {
        real = true;
        end = digits_end(end + 1);
      }
      const std::size_t exponent = end + 1 + (peek(end + 1) == '+' || peek(end + 1) == '-' ? 1 : 0);
      if ((peek(end) == 'e' || peek(end) == 'E') && is_digit(peek(exponent))) {
        real = true;
        end = digits_end(exponent);
      }
    }
    if (!real && rest_[at_] == '0') end = zero_end();
    take(real ? Token::Kind::kFloat : Token::Kind::kInteger, end);
    std::erase(tokens_.back().text, '_');
  }

  // The end of an integer that begins with 0: of another base, or nothing but zeros.
  std::size_t zero_end() const {
    const char base = static_cast<char>(peek(at_ + 1) | 0x20);
    std::size_t end = at_ + 2;
    const auto digit = [&](char c) {
      const char low = static_cast<char>(c | 0x20);
      return base == 'x'   ? is_digit(c) || (low >= 'a' && low <= 'f')
             : base == 'o' ? c >= '0' && c <= '7'
                           : c == '0' || c == '1';
    };
    if (base == 'x' || base == 'o' || base == 'b')
      while (digit(peek(end)) || (peek(end) == '_' && digit(peek(end + 1)))) ++end;
    if (end > at_ + 2) return end;
    end = at_ + 1;
    while (peek(end) == '0' || (peek(end) == '_' && peek(end + 1) == '0')) ++end;
    return end;
  }

  // ---- places and lines
  char peek(std::size_t at) const { return at < rest_.size() ? rest_[at] : '\0'; }
  static std::size_t spaces_end(std::string_view text, std::size_t at) {
    while (at < text.size() && is_space(character_at(text, at))) at += character_bytes(text[at]);
    return std::min(at, text.size());
  }
  std::uint32_t lines_in(std::size_t begin, std::size_t end) const {
    return static_cast<std::uint32_t>(std::count(rest_.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 rest_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  }
  void move_to(std::size_t at) {
    line_ += lines_in(at_, at);
    if (at > at_) line_starting_ = rest_[at - 1] == '\n';
    at_ = at;
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void add_data(std::string_view text) {
    if (!text.empty()) add(Token::Kind::kData, std::string(text));
  }
  void take(Token::Kind kind, std::size_t end) {
    add(kind, std::string(rest_.substr(at_, end - at_)));
    move_to(end);
  }

  const std::string source_;
  const std::string_view rest_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true;  // nothing but tags came before on this line
  std::string brackets_;       // those that are open, as what closes them
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

void syntax_error(std::uint32_t line, const std::string& what) {
  throw Failure{ErrorCode::kCorrupt, fmt::format("line {}: {}", line, what), true};
}

}  // namespace terrace::text::jinja
