// Tokens in order, and what a parser asks of the next one.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/text/jinja/lexer.h"

namespace terrace::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  std::uint32_t line() const { return current().line; }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const { return current().is_operator(text); }
  bool is_name(std::string_view text) const { return current().is_name(text); }

  // The last one, kEnd, is never passed.
  Token next() {
    Token token = current();
    if (token.kind != Token::Kind::kEnd) ++at_;
    return token;
  }
  bool skip_operator(std::string_view text) { return is_operator(text) && skip(); }
  bool skip_name(std::string_view text) { return is_name(text) && skip(); }
  Token expect(Token::Kind kind, const char* what) {
    if (!is(kind)) unexpected(what);
    return next();
  }
  void expect_operator(const char* text) {
    if (!skip_operator(text)) unexpected(fmt::format("'{}'", text));
  }
  void expect_name(const char* text) {
    if (!skip_name(text)) unexpected(fmt::format("'{}'", text));
  }
  [[noreturn]] void unexpected(const std::string& wanted) const {
    syntax_error(line(), fmt::format("expected {}, found {}", wanted, shown()));
  }
  std::string shown() const {
    switch (current().kind) {
      case Token::Kind::kBlockEnd:
        return "the statement's end";
      case Token::Kind::kVariableEnd:
        return "the expression's end";
      case Token::Kind::kEnd:
        return "the template's end";
      case Token::Kind::kString:
        return "a string";
      default:
        return fmt::format("'{}'", current().text);
    }
  }

 private:
  bool skip() {
    (void)next();
    return true;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace terrace::text::jinja
