// The tightest part of an expression: names, literals, and what follows them; arguments, and targets of assignments.
#include <charconv>
#include <cstdlib>

#include "coordinator/text/jinja/expression_parser.h"

namespace terrace::text::jinja {

ExpressionPtr ExpressionParser::primary() {
  const std::uint32_t line = tokens_.line();
  switch (tokens_.current().kind) {
    case Kind::kName:
      return name();
    case Kind::kString: {
      std::string text;
      while (tokens_.is(Kind::kString)) text += tokens_.next().text;
      return make(line, StringLiteral{Text(std::move(text))});
    }
    case Kind::kInteger:
    case Kind::kFloat:
      return number();
    default:
      if (tokens_.is_operator("(")) return parenthesised();
      if (tokens_.is_operator("[")) return list();
      if (tokens_.is_operator("{")) return dict();
      tokens_.unexpected("an expression");
  }
}

ExpressionPtr ExpressionParser::name() {
  const Token token = tokens_.next();
  const std::string& text = token.text;
  if (text == "true" || text == "True") return make(token.line, Literal{Value(true)});
  if (text == "false" || text == "False") return make(token.line, Literal{Value(false)});
  if (text == "none" || text == "None") return make(token.line, Literal{Value()});
  names.insert(text);
  return make(token.line, Name{text});
}

ExpressionPtr ExpressionParser::number() {
  const Token token = tokens_.next();
  const std::string& text = token.text;
  if (token.kind == Kind::kFloat) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Out of range means too large, or too small: infinity and nothing, as Python reads them.
    if (error == std::errc::result_out_of_range) value = std::strtod(text.c_str(), nullptr);
    return make(token.line, Literal{Value(value)});
  }
  const char mark = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : '0';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + (base == 10 ? 0 : 2), text.data() + text.size(), value, base);
  if (error != std::errc())
    throw Failure{ErrorCode::kUnsupported,
                  fmt::format("line {}: {} is beyond the 64 bits that integers have here", token.line, text), true};
  return make(token.line, Literal{Value(value)});
}

ExpressionPtr ExpressionParser::parenthesised() {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_operator("(");
  ExpressionPtr node;
  if (tokens_.is_operator(")"))
    node = make(line, Sequence{true, {}});
  else
    node = tuple(true);
  tokens_.expect_operator(")");
  return node;
}

ExpressionPtr ExpressionParser::list() {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_operator("[");
  std::vector<ExpressionPtr> items;
  while (!tokens_.is_operator("]")) {
    if (!items.empty()) tokens_.expect_operator(",");
    if (tokens_.is_operator("]")) break;
    items.push_back(expression());
  }
  tokens_.expect_operator("]");
  const std::uint32_t depth = depth_of(items);
  return make(line, Sequence{false, std::move(items)}, depth);
}

ExpressionPtr ExpressionParser::dict() {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_operator("{");
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  std::uint32_t depth = 0;
  while (!tokens_.is_operator("}")) {
    if (!entries.empty()) tokens_.expect_operator(",");
    if (tokens_.is_operator("}")) break;
    ExpressionPtr key = expression();
    tokens_.expect_operator(":");
    ExpressionPtr value = expression();
    depth = std::max({depth, depth_of(key), depth_of(value)});
    entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_operator("}");
  return make(line, DictDisplay{std::move(entries)}, depth);
}

bool ExpressionParser::tuple_ends(std::string_view end_name) const {
  return tokens_.is(Kind::kVariableEnd) || tokens_.is(Kind::kBlockEnd) || tokens_.is_operator(")") ||
         (!end_name.empty() && tokens_.is_name(end_name));
}

ExpressionPtr ExpressionParser::tuple(bool with_if, std::string_view end_name) {
  const std::uint32_t line = tokens_.line();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (tuple_ends(end_name)) break;
    items.push_back(with_if ? expression() : expression_without_if());
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (items.empty()) tokens_.unexpected("an expression");
  if (!is_tuple) return std::move(items.front());
  const std::uint32_t depth = depth_of(items);
  return make(line, Sequence{true, std::move(items)}, depth);
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  for (;;) {
    if (tokens_.is_operator("."))
      node = attribute_or_index(std::move(node));
    else if (tokens_.is_operator("["))
      node = item(std::move(node));
    else if (tokens_.is_operator("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::call(ExpressionPtr node) {
  const std::uint32_t line = tokens_.line();
  ArgumentList list = arguments();
  const std::uint32_t depth = std::max(depth_of(node), depth_of(list));
  return make(line, Call{std::move(node), std::move(list)}, depth);
}

ExpressionPtr ExpressionParser::filter_expression(ExpressionPtr node) {
  for (;;) {
    const std::uint32_t line = tokens_.line();
    if (tokens_.skip_operator("|")) {
      Application filter = application();
      const std::uint32_t depth = std::max(depth_of(node), depth_of(filter.arguments));
      node = make(line, Filtered{std::move(node), std::move(filter)}, depth);
    } else if (tokens_.is_name("is")) {
      node = test(std::move(node));
    } else if (tokens_.is_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::attribute_or_index(ExpressionPtr node) {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_operator(".");
  const std::uint32_t depth = depth_of(node);
  if (tokens_.is(Kind::kInteger)) {
    ExpressionPtr key = number();
    return make(line, Item{std::move(node), std::move(key)}, depth);
  }
  std::string name = tokens_.expect(Kind::kName, "a name or a number").text;
  return make(line, Attribute{std::move(node), std::move(name)}, depth);
}

ExpressionPtr ExpressionParser::item(ExpressionPtr node) {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_operator("[");
  std::vector<ExpressionPtr> keys;
  while (!tokens_.is_operator("]")) {
    if (!keys.empty()) tokens_.expect_operator(",");
    keys.push_back(subscript());
  }
  tokens_.expect_operator("]");
  ExpressionPtr key;
  if (keys.size() == 1) {
    key = std::move(keys.front());
  } else {
    const std::uint32_t depth = depth_of(keys);
    key = make(line, Sequence{true, std::move(keys)}, depth);
  }
  const std::uint32_t depth = std::max(depth_of(node), depth_of(key));
  return make(line, Item{std::move(node), std::move(key)}, depth);
}

// An index, or start:stop:step with any of them left out.
ExpressionPtr ExpressionParser::subscript() {
  const std::uint32_t line = tokens_.line();
  std::vector<ExpressionPtr> parts(1);
  if (!tokens_.is_operator(":")) {
    parts.back() = expression();
    if (!tokens_.is_operator(":")) return std::move(parts.back());
  }
  while (parts.size() < 3 && tokens_.skip_operator(":")) {
    parts.emplace_back();
    if (!tokens_.is_operator(":") && !tokens_.is_operator("]") && !tokens_.is_operator(","))
      parts.back() = expression();
  }
  parts.resize(3);
  const std::uint32_t depth = depth_of(parts);
  return make(line, Slice{std::move(parts[0]), std::move(parts[1]), std::move(parts[2])}, depth);
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect(Kind::kName, "a name").text;
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect(Kind::kName, "a name").text;
  return name;
}

Application ExpressionParser::application() {
  Application made;
  made.line = tokens_.line();
  made.name = dotted_name();
  if (tokens_.is_operator("(")) made.arguments = arguments();
  return made;
}

std::vector<Application> ExpressionParser::filters(bool at_name) {
  std::vector<Application> all;
  if (at_name) all.push_back(application());
  while (tokens_.skip_operator("|")) all.push_back(application());
  return all;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr node) {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_name("is");
  const bool negated = tokens_.skip_name("not");
  Application made;
  made.line = line;
  made.name = dotted_name();
  const bool bare_argument = tokens_.is(Kind::kName) || tokens_.is(Kind::kString) || tokens_.is(Kind::kInteger) ||
                             tokens_.is(Kind::kFloat) || tokens_.is_operator("[") || tokens_.is_operator("{");
  if (tokens_.is_operator("(")) {
    made.arguments = arguments();
  } else if (bare_argument && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and")) {
    if (tokens_.is_name("is")) syntax_error(line, "tests cannot be chained with `is`");
    made.arguments.positional.push_back(postfix(primary()));
  }
  const std::uint32_t depth = std::max(depth_of(node), depth_of(made.arguments));
  node = make(line, Tested{std::move(node), std::move(made)}, depth);
  return negated ? make(line, Unary{UnaryOperator::kNot, std::move(node)}, depth + 1) : std::move(node);
}

ArgumentList ExpressionParser::arguments() {
  const std::uint32_t line = tokens_.line();
  tokens_.expect_operator("(");
  ArgumentList list;
  bool first = true;
  const auto in_order = [&](bool right) {
    if (!right) syntax_error(line, "the arguments of a call are not in order: positional, named, *list, **names");
  };
  while (!tokens_.is_operator(")")) {
    if (!first) tokens_.expect_operator(",");
    first = false;
    if (tokens_.is_operator(")")) break;
    if (tokens_.skip_operator("*")) {
      in_order(list.star == nullptr && list.star_star == nullptr);
      list.star = expression();
    } else if (tokens_.skip_operator("**")) {
      in_order(list.star_star == nullptr);
      list.star_star = expression();
    } else if (tokens_.is(Kind::kName) && tokens_.ahead().is_operator("=")) {
      in_order(list.star_star == nullptr);
      std::string key = tokens_.next().text;
      tokens_.expect_operator("=");
      list.named.emplace_back(std::move(key), expression());
    } else {
      in_order(list.named.empty() && list.star == nullptr && list.star_star == nullptr);
      list.positional.push_back(expression());
    }
  }
  tokens_.expect_operator(")");
  return list;
}

std::string ExpressionParser::target_name() {
  const Token token = tokens_.expect(Kind::kName, "a name");
  for (const char* const constant : {"true", "True", "false", "False", "none", "None"})
    if (token.text == constant) syntax_error(token.line, fmt::format("nothing can be assigned to {}", constant));
  return token.text;
}

Target ExpressionParser::single_target(bool with_namespace) {
  Target target;
  if (tokens_.is_operator("(")) {
    const Level level(*this);
    tokens_.expect_operator("(");
    target = this->target(with_namespace);
    tokens_.expect_operator(")");
    return target;
  }
  target.name = target_name();
  if (with_namespace && tokens_.skip_operator(".")) {
    names.insert(target.name);
    target.attribute = tokens_.expect(Kind::kName, "an attribute's name").text;
  }
  return target;
}

Target ExpressionParser::target(bool with_namespace, std::string_view end_name) {
  Target tuple;
  for (;;) {
    if (tuple_ends(end_name)) break;
    tuple.parts.push_back(single_target(with_namespace));
    if (!tokens_.skip_operator(",")) break;
    tuple.tuple = true;
  }
  if (tuple.parts.empty()) tokens_.unexpected("a name to assign to");
  if (tuple.tuple) return tuple;
  Target one = std::move(tuple.parts.front());
  return one;
}

}  // namespace terrace::text::jinja
