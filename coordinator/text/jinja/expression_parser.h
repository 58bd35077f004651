// Expressions, by jinja2's grammar: from the loosest binding to the tightest
//   a if b else c;  or;  and;  not;  comparisons, in;  + -;  ~;  * / // %;  **;  unary - +;  . [] () and | is
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/text/jinja/limits.h"
#include "coordinator/text/jinja/syntax.h"
#include "coordinator/text/jinja/token_stream.h"

namespace terrace::text::jinja {

class ExpressionParser {
 public:
  // Both are borrowed.
  ExpressionParser(TokenStream& tokens, const Limits& limits) : tokens_(tokens), limits_(limits) {}

  ExpressionPtr expression();  // with an inline if
  ExpressionPtr expression_without_if();
  // One expression, or several with commas between: a tuple. `end_name`: a name that ends it too.
  ExpressionPtr tuple(bool with_if, std::string_view end_name = {});
  // Behind the first `|`, or at the filter's name: name(arguments) | name ...
  std::vector<Application> filters(bool at_name);
  Target target(bool with_namespace, std::string_view end_name = {});
  std::string target_name();

  // Names that were read. The parser of macros takes names out and puts them back, to see which a body reads.
  std::unordered_set<std::string> names;

  // Counts a level of nesting while it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) { parser_.check_depth(++parser_.level_); }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  using Kind = Token::Kind;

  using OperatorText = std::pair<std::string_view, BinaryOperator>;
  // Operands with operators of one rank between them.
  ExpressionPtr left_to_right(ExpressionPtr (ExpressionParser::*operand)(),
                              std::initializer_list<OperatorText> operators);
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr power_operand();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name();
  ExpressionPtr number();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr parenthesised();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filter_expression(ExpressionPtr node);
  ExpressionPtr attribute_or_index(ExpressionPtr node);
  ExpressionPtr item(ExpressionPtr node);
  ExpressionPtr call(ExpressionPtr node);
  ExpressionPtr subscript();
  ExpressionPtr test(ExpressionPtr node);
  Application application();
  ArgumentList arguments();
  bool tuple_ends(std::string_view end_name) const;
  std::string dotted_name();
  Target single_target(bool with_namespace);

  static std::uint32_t depth_of(const ExpressionPtr& node) { return node == nullptr ? 0 : node->depth; }
  static std::uint32_t depth_of(const std::vector<ExpressionPtr>& nodes);
  static std::uint32_t depth_of(const ArgumentList& list);
  ExpressionPtr make(std::uint32_t line, Expression::Node node, std::uint32_t depth_below = 0);
  void check_depth(std::uint32_t depth) const;

  TokenStream& tokens_;
  const Limits& limits_;
  std::uint32_t level_ = 0;
};

}  // namespace terrace::text::jinja
