#include "coordinator/text/jinja/parser.h"

#include <fmt/core.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "coordinator/text/jinja/expression_parser.h"
#include "coordinator/text/jinja/token_stream.h"

namespace terrace::text::jinja {
namespace {

using TokenKind = Token::Kind;
using EndNames = std::initializer_list<const char*>;

class Parser {
 public:
  Parser(std::string_view source, const Limits& limits) : tokens_(lex(source)), expressions_(tokens_, limits) {}

  Program run() {
    Program program;
    program.body = body({});
    program.names = std::move(expressions_.names);
    return program;
  }

 private:
  // Statements and text up to a tag that begins with one of `ends`, whose name is then the current token; without
  // `ends` to the template's end.
  Body body(EndNames ends) {
    const ExpressionParser::Level level(expressions_);
    Body body;
    for (;;) {
      const std::uint32_t line = tokens_.line();
      switch (tokens_.current().kind) {
        case TokenKind::kData:
          body.push_back({Data{Text(tokens_.next().text)}, line});
          break;
        case TokenKind::kVariableBegin:
          (void)tokens_.next();
          body.push_back({Print{expressions_.tuple(true)}, line});
          tokens_.expect(TokenKind::kVariableEnd, "the expression's end }}");
          break;
        case TokenKind::kBlockBegin:
          (void)tokens_.next();
          for (const char* const end : ends)
            if (tokens_.is_name(end)) return body;
          statement(body);
          tokens_.expect(TokenKind::kBlockEnd, "the statement's end %}");
          break;
        default:
          if (ends.size() != 0) tokens_.unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
          return body;
      }
    }
  }

  // The body of a statement whose tag is read up to its end.
  Body block(EndNames ends) {
    (void)tokens_.skip_operator(":");
    tokens_.expect(TokenKind::kBlockEnd, "the statement's end %}");
    return body(ends);
  }
  Body block_to(const char* end) {
    Body made = block({end});
    (void)tokens_.next();
    return made;
  }

  void statement(Body& body) {
    const Token token = tokens_.expect(TokenKind::kName, "a statement's name");
    const std::string& name = token.text;
    const auto add = [&](Statement::Node node) { body.push_back({std::move(node), token.line}); };
    if (name == "if") return add(if_statement());
    if (name == "for") return add(for_statement());
    if (name == "set") return set_statement(body, token.line);
    if (name == "macro") return add(macro());
    if (name == "call") return add(call_block());
    if (name == "filter") return add(filter_block());
    if (name == "with") return add(with_statement());
    // What stands between is rendered as ever; it has names of its own.
    if (name == "generation") return add(With{{}, block_outside_of_loops("endgeneration")});
    if (name == "print") return print_statement(body, token.line);
    if (name == "break" || name == "continue") {
      if (loops_ == 0) syntax_error(token.line, fmt::format("'{}' outside of a loop", name));
      return name == "break" ? add(Break{}) : add(Continue{});
    }
    refuse_statement(name, token.line);
  }

  [[noreturn]] static void refuse_statement(const std::string& name, std::uint32_t line) {
    for (const char* const known : {"include", "import", "from", "extends", "block", "autoescape"})
      if (name == known)
        throw Failure{
            ErrorCode::kUnsupported,
            fmt::format("line {}: the statement '{}' is not for chat templates, which are one file", line, name), true};
    syntax_error(line,
                 fmt::format("there is no statement '{}'{}", name, name.starts_with("end") ? " that ends here" : ""));
  }

  If if_statement() {
    If made;
    for (;;) {
      ExpressionPtr test = expressions_.tuple(false);
      Body then = block({"elif", "else", "endif"});
      made.branches.emplace_back(std::move(test), std::move(then));
      const std::string end = tokens_.next().text;
      if (end == "endif") return made;
      if (end == "else") {
        made.otherwise = block_to("endif");
        return made;
      }
    }
  }

  For for_statement() {
    For made;
    made.target = expressions_.target(false, "in");
    tokens_.expect_name("in");
    made.iterable = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) made.filter = expressions_.expression();
    made.recursive = tokens_.skip_name("recursive");
    ++loops_;
    made.body = block({"else", "endfor"});
    --loops_;
    if (tokens_.next().text == "else") made.otherwise = block_to("endfor");
    return made;
  }

  void set_statement(Body& body, std::uint32_t line) {
    Target target = expressions_.target(true);
    if (tokens_.skip_operator("=")) {
      body.push_back({Set{std::move(target), expressions_.tuple(true)}, line});
      return;
    }
    SetBlock made{std::move(target), expressions_.filters(false), {}};
    made.body = block_to("endset");
    body.push_back({std::move(made), line});
  }

  std::vector<Parameter> signature() {
    std::vector<Parameter> parameters;
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      if (!parameters.empty()) tokens_.expect_operator(",");
      Parameter made;
      const std::uint32_t line = tokens_.line();
      made.name = expressions_.target_name();
      if (tokens_.skip_operator("="))
        made.otherwise = expressions_.expression();
      else if (!parameters.empty() && parameters.back().otherwise != nullptr)
        syntax_error(line, fmt::format("parameter {} has no default and follows one that has", made.name));
      for (const Parameter& other : parameters)
        if (other.name == made.name) syntax_error(line, fmt::format("there are two parameters {}", made.name));
      parameters.push_back(std::move(made));
    }
    tokens_.expect_operator(")");
    return parameters;
  }

  // A body that loops around it do not reach.
  Body block_outside_of_loops(const char* end) {
    const std::uint32_t loops = std::exchange(loops_, 0);
    Body made = block_to(end);
    loops_ = loops;
    return made;
  }

  // Which of the special names the body reads is known from those that are read for the first time.
  void macro_body(MacroDefinition& macro, const char* end) {
    std::array<std::string, 3> special = {"caller", "varargs", "kwargs"};
    std::array<bool, 3> before{};
    for (std::size_t i = 0; i < special.size(); ++i) before[i] = expressions_.names.erase(special[i]) != 0;
    macro.body = block_outside_of_loops(end);
    macro.reads_caller = expressions_.names.contains(special[0]);
    macro.reads_varargs = expressions_.names.contains(special[1]);
    macro.reads_kwargs = expressions_.names.contains(special[2]);
    for (std::size_t i = 0; i < special.size(); ++i)
      if (before[i]) expressions_.names.insert(special[i]);
  }

  MacroDefinition macro() {
    MacroDefinition made;
    made.name = expressions_.target_name();
    made.parameters = signature();
    macro_body(made, "endmacro");
    return made;
  }

  CallBlock call_block() {
    CallBlock made;
    made.caller.name = "caller";
    if (tokens_.is_operator("(")) made.caller.parameters = signature();
    const std::uint32_t line = tokens_.line();
    made.call = expressions_.expression();
    if (!std::holds_alternative<Call>(made.call->node)) syntax_error(line, "a call block calls something: name(...)");
    macro_body(made.caller, "endcall");
    return made;
  }

  FilterBlock filter_block() {
    FilterBlock made{expressions_.filters(true), {}};
    made.body = block_to("endfilter");
    return made;
  }

  With with_statement() {
    With made;
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!made.names.empty()) tokens_.expect_operator(",");
      Target target = expressions_.target(false);
      tokens_.expect_operator("=");
      made.names.emplace_back(std::move(target), expressions_.expression());
    }
    made.body = block_to("endwith");
    return made;
  }

  void print_statement(Body& body, std::uint32_t line) {
    bool first = true;
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!first) tokens_.expect_operator(",");
      first = false;
      body.push_back({Print{expressions_.expression()}, line});
    }
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::uint32_t loops_ = 0;  // around this place, in the same macro
};

}  // namespace

Program parse(std::string_view source, const Limits& limits) { return Parser(source, limits).run(); }

}  // namespace terrace::text::jinja
