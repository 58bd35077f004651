#include "coordinator/text/jinja/expression_parser.h"

namespace terrace::text::jinja {

void ExpressionParser::check_depth(std::uint32_t depth) const {
  if (depth > limits_.syntax_depth)
    throw Failure{ErrorCode::kOutOfMemory,
                  fmt::format("line {}: expressions and statements lie more than {} deep in one another (limit: depth "
                              "of syntax)",
                              tokens_.line(), limits_.syntax_depth),
                  true};
}

ExpressionPtr ExpressionParser::make(std::uint32_t line, Expression::Node node, std::uint32_t depth_below) {
  check_depth(depth_below + 1);
  return std::make_unique<const Expression>(Expression{std::move(node), line, depth_below + 1});
}

std::uint32_t ExpressionParser::depth_of(const std::vector<ExpressionPtr>& nodes) {
  std::uint32_t depth = 0;
  for (const ExpressionPtr& node : nodes) depth = std::max(depth, depth_of(node));
  return depth;
}

std::uint32_t ExpressionParser::depth_of(const ArgumentList& list) {
  std::uint32_t depth = std::max({depth_of(list.positional), depth_of(list.star), depth_of(list.star_star)});
  for (const auto& [name, value] : list.named) depth = std::max(depth, depth_of(value));
  return depth;
}

ExpressionPtr ExpressionParser::expression() {
  const Level level(*this);
  const std::uint32_t line = tokens_.line();
  ExpressionPtr node = disjunction();
  while (tokens_.skip_name("if")) {
    ExpressionPtr condition = disjunction(), otherwise;
    if (tokens_.skip_name("else")) otherwise = expression();
    const std::uint32_t depth = std::max({depth_of(condition), depth_of(node), depth_of(otherwise)});
    node = make(line, Conditional{std::move(condition), std::move(node), std::move(otherwise)}, depth);
  }
  return node;
}

ExpressionPtr ExpressionParser::expression_without_if() {
  const Level level(*this);
  return disjunction();
}

ExpressionPtr ExpressionParser::left_to_right(ExpressionPtr (ExpressionParser::*operand)(),
                                              std::initializer_list<OperatorText> operators) {
  const std::uint32_t line = tokens_.line();
  ExpressionPtr left = (this->*operand)();
  for (;;) {
    const auto* const op = std::ranges::find_if(operators, [this](const OperatorText& candidate) {
      return tokens_.is_operator(candidate.first) || tokens_.is_name(candidate.first);
    });
    if (op == operators.end()) return left;
    (void)tokens_.next();
    ExpressionPtr right = (this->*operand)();
    const std::uint32_t depth = std::max(depth_of(left), depth_of(right));
    left = make(line, Binary{op->second, std::move(left), std::move(right)}, depth);
  }
}

ExpressionPtr ExpressionParser::disjunction() {
  return left_to_right(&ExpressionParser::conjunction, {{"or", BinaryOperator::kOr}});
}

ExpressionPtr ExpressionParser::conjunction() {
  return left_to_right(&ExpressionParser::negation, {{"and", BinaryOperator::kAnd}});
}

ExpressionPtr ExpressionParser::negation() {
  const std::uint32_t line = tokens_.line();
  if (!tokens_.skip_name("not")) return comparison();
  const Level level(*this);
  ExpressionPtr operand = negation();
  const std::uint32_t depth = depth_of(operand);
  return make(line, Unary{UnaryOperator::kNot, std::move(operand)}, depth);
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual}};
  const std::uint32_t line = tokens_.line();
  ExpressionPtr first = sum();
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  std::uint32_t depth = depth_of(first);
  for (;;) {
    const auto* const op = std::ranges::find_if(
        kOperators, [this](const auto& candidate) { return tokens_.is_operator(candidate.first); });
    Comparison how = Comparison::kIn;
    if (op != std::end(kOperators)) {
      how = op->second;
      (void)tokens_.next();
    } else if (tokens_.is_name("not") && tokens_.ahead().is_name("in")) {
      how = Comparison::kNotIn;
      (void)tokens_.next();
      (void)tokens_.next();
    } else if (!tokens_.skip_name("in")) {
      break;
    }
    rest.emplace_back(how, sum());
    depth = std::max(depth, depth_of(rest.back().second));
  }
  if (rest.empty()) return first;
  return make(line, Compare{std::move(first), std::move(rest)}, depth);
}

ExpressionPtr ExpressionParser::sum() {
  return left_to_right(&ExpressionParser::concatenation,
                       {{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}});
}

ExpressionPtr ExpressionParser::concatenation() {
  const std::uint32_t line = tokens_.line();
  std::vector<ExpressionPtr> parts;
  do parts.push_back(product());
  while (tokens_.skip_operator("~"));
  if (parts.size() == 1) return std::move(parts.front());
  const std::uint32_t depth = depth_of(parts);
  return make(line, Concatenation{std::move(parts)}, depth);
}

ExpressionPtr ExpressionParser::product() {
  return left_to_right(&ExpressionParser::power, {{"*", BinaryOperator::kMultiply},
                                                  {"/", BinaryOperator::kDivide},
                                                  {"//", BinaryOperator::kFloorDivide},
                                                  {"%", BinaryOperator::kModulo}});
}

ExpressionPtr ExpressionParser::power() {
  return left_to_right(&ExpressionParser::power_operand, {{"**", BinaryOperator::kPower}});
}

ExpressionPtr ExpressionParser::power_operand() { return unary(true); }

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  const std::uint32_t line = tokens_.line();
  ExpressionPtr node;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const UnaryOperator op = tokens_.next().text == "-" ? UnaryOperator::kMinus : UnaryOperator::kPlus;
    ExpressionPtr operand = unary(false);
    const std::uint32_t depth = depth_of(operand);
    node = make(line, Unary{op, std::move(operand)}, depth);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filter_expression(std::move(node)) : std::move(node);
}

}  // namespace terrace::text::jinja
