// Errors name their place, and hostile templates end by the limit that is meant for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/text/jinja/template.h"

namespace terrace::text::jinja {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

Error error_of(const std::string& source, const Json& variables = Json::object(), const Limits& limits = {}) {
  const auto made = Template::compile(source, limits);
  if (!made.ok()) return made.error();
  RenderOptions options;
  options.limits = limits;
  const auto rendered = made->render(variables, options);
  EXPECT_FALSE(rendered.ok()) << source << " gives " << rendered->text.substr(0, 200);
  return rendered.ok() ? Error(ErrorCode::kInternal, "none") : rendered.error();
}

std::string repeated(const std::string& text, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += text;
  return out;
}

struct Case {
  const char* source;
  ErrorCode code;
  const char* says;
};

TEST(TemplateErrors, NameTheLineAndWhatIsWrong) {
  for (const Case& each : {
           Case{"a\n{{ 1 + }}", ErrorCode::kCorrupt, "line 2: expected an expression, found the expression's end"},
           Case{"{% if x %}\n\n{{ 1 }}", ErrorCode::kCorrupt, "line 3: expected {% endif %}, found the template's end"},
           Case{"\n\n{% endfor %}", ErrorCode::kCorrupt, "line 3: there is no statement 'endfor' that ends here"},
           Case{"{% do x %}", ErrorCode::kCorrupt, "line 1: there is no statement 'do'"},
           Case{"\n{# never", ErrorCode::kCorrupt, "line 2: a comment is not closed"},
           Case{"{{ 'x }}", ErrorCode::kCorrupt, "line 1: a string is not closed"},
           Case{"{{ x ] }}", ErrorCode::kCorrupt, "line 1: unexpected ']'"},
           Case{"{% break %}", ErrorCode::kCorrupt, "line 1: 'break' outside of a loop"},
           Case{"\xff", ErrorCode::kCorrupt, "not UTF-8"},
           Case{"x\n{{ a.b }}", ErrorCode::kRefused, "line 2: 'a' is undefined"},
           Case{"{{ {}.x.y }}", ErrorCode::kRefused, "line 1: 'dict object' has no attribute 'x'"},
           Case{"\n\n\n{{ 'a' +\n 1 }}", ErrorCode::kRefused, "can only concatenate str (not \"int\") to str"},
           Case{"{{ 1 < 'a' }}", ErrorCode::kRefused, "'<' not supported between instances of 'int' and 'str'"},
           Case{"{{ [].nosuch() }}", ErrorCode::kRefused, "'list object' has no attribute 'nosuch'"},
           Case{"{{ 9223372036854775807 + 1 }}", ErrorCode::kUnsupported, "64 bits"},
           Case{"{{ 9223372036854775808 }}", ErrorCode::kUnsupported, "64 bits"},
           Case{"{{ 1 | nosuch }}", ErrorCode::kUnsupported, "line 1: there is no filter 'nosuch'"},
           Case{"{{ 1 is nosuch }}", ErrorCode::kUnsupported, "line 1: there is no test 'nosuch'"},
           Case{"{{ 'x'.format(1) }}", ErrorCode::kUnsupported, "str.format() is not in this interpreter"},
           Case{"\n{% include 'x' %}", ErrorCode::kUnsupported, "line 2: the statement 'include'"},
           Case{"{% extends 'x' %}", ErrorCode::kUnsupported, "'extends'"},
           Case{"{% import 'x' as y %}", ErrorCode::kUnsupported, "'import'"},
           Case{"{% from 'x' import y %}", ErrorCode::kUnsupported, "'from'"},
           Case{"{% block x %}{% endblock %}", ErrorCode::kUnsupported, "'block'"},
       }) {
    const Error error = error_of(each.source);
    EXPECT_EQ(error.code(), each.code) << each.source << ": " << error.text();
    EXPECT_THAT(error.text(), HasSubstr(each.says)) << each.source;
  }
}

TEST(TemplateErrors, WrongVariables_AreTheCallers) {
  const Template made = Template::compile("{{ x }}").value();
  const auto code = [&](const Json& variables) { return made.render(variables, {}).error().code(); };
  EXPECT_EQ(code(Json::array()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{"x", "\xff"}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{"x", {{"\xff", 1}}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{"x", UINT64_MAX}}), ErrorCode::kInvalidArgument);
}

TEST(TemplateLimits, Source) {
  Limits limits;
  limits.source_bytes = 10;
  EXPECT_TRUE(Template::compile("0123456789", limits).ok());
  EXPECT_THAT(error_of("01234567890", Json::object(), limits).text(), HasSubstr("(limit: size of the source)"));
}

// Each way to nest, fifty thousand deep: refused, and no stack is run over.
TEST(TemplateLimits, DepthOfSyntax) {
  constexpr std::size_t kDeep = 50'000;
  const std::string pairs[][2] = {
      {"(", ")"},           {"[", "]"},  {"{1: ", "}"},  {"-", ""},     {"not ", ""},   {"f(", ")"},
      {"1 if ", " else 2"}, {"x[", "]"}, {"1 + ", ""},   {"1 ** ", ""}, {"a or ", ""},  {"", ".x"},
      {"", "[0]"},          {"", "()"},  {"", "|upper"}, {"", " + 1"},  {"", " and 1"}, {"1 if 1 else ", ""}};
  for (const auto& [before, after] : pairs) {
    const Error error = error_of("{{ " + repeated(before, kDeep) + "x" + repeated(after, kDeep) + " }}", {{"x", 1}});
    EXPECT_THAT(error.text(), HasSubstr("(limit: depth of syntax)")) << before << "x" << after;
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  for (const char* const statement :
       {"{% if x %}", "{% for i in x %}", "{% filter upper %}", "{% with %}", "{% macro f() %}"})
    EXPECT_THAT(error_of(repeated(statement, 10'000)).text(), HasSubstr("(limit: depth of syntax)")) << statement;
  EXPECT_THAT(error_of("{% for " + repeated("(", kDeep) + "x" + repeated(")", kDeep) + " in y %}").text(),
              HasSubstr("(limit: depth of syntax)"));
  // Long is not deep.
  EXPECT_TRUE(Template::compile("{{ 'a'" + repeated(" ~ 'b'", 10'000) + " }}").ok());
  EXPECT_TRUE(Template::compile("{% if a %}" + repeated("{% elif b %}", 10'000) + "{% endif %}").ok());
}

TEST(TemplateLimits, DepthOfCalls) {
  for (const char* const source : {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                                   "{% macro f(x) %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}",
                                   "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
                                   "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ [1] | map('string') | list "
                                   "}}{{ a() }}{% endmacro %}{{ a() }}"}) {
    const Error error = error_of(source);
    EXPECT_THAT(error.text(), HasSubstr("(limit: depth of calls)")) << source;
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
}

TEST(TemplateLimits, DepthOfValues) {
  const std::string nest =
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}";
  const std::string cycles =
      "{% set ns = namespace(l=[], m=[]) %}{% set _ = ns.l.append(ns.l) %}{% set _ = ns.m.append(ns.m) %}";
  for (const char* const use : {"{{ ns.l }}", "{{ ns.l | tojson }}", "{{ ns.l ~ 'a' }}"})
    for (const std::string& make : {nest, cycles})
      EXPECT_THAT(error_of(make + use).text(), HasSubstr("(limit: depth of values)")) << make << use;
  for (const char* const use : {"{{ ns.l == ns.m }}", "{{ ns.l < ns.m }}", "{{ ns.l in [ns.m] }}"})
    EXPECT_THAT(error_of(cycles + use).text(), HasSubstr("(limit: depth of values)")) << use;
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_THAT(error_of("x", {{"v", deep}}).text(), HasSubstr("(limit: depth of values)"));
  EXPECT_THAT(error_of("{{ ('[' * 5000 + ']' * 5000) | from_json }}").text(), HasSubstr("(limit: depth of values)"));
}

TEST(TemplateLimits, Steps) {
  Limits limits;
  limits.steps = 200'000;
  const std::string ranges = "{% for a in range(10000) %}{% for b in range(10000) %}";
  for (const std::string& source :
       {ranges + "{% endfor %}{% endfor %}",
        // Work that evaluates few nodes: searching, comparing, sorting, one value reached by many ways.
        std::string("{% set s = 'a' * 100000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}"),
        std::string(
            "{% set s = 'a' * 100000 %}{% set t = 'a' * 100000 %}{% for i in range(100000) %}{{ s == t }}{% endfor %}"),
        std::string("{% set s = 'é' * 100000 %}{% for i in range(100000) %}{{ s[99999] }}{% endfor %}"),
        std::string("{% set s = 'a' * 100000 %}{% for i in range(100000) %}{{ s | length }}{% endfor %}"),
        std::string("{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
                    "%}{{ ns.l == 1 }}{{ ns.l | tojson }}"),
        std::string("{% set l = range(90000) | list %}{% for i in range(10000) %}{{ l.index(89999) }}{% endfor %}")}) {
    const Error error = error_of(source, Json::object(), limits);
    EXPECT_THAT(error.text(), HasSubstr("(limit: steps)")) << source;
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
}

TEST(TemplateLimits, MemoryOfValues) {
  Limits limits;
  limits.value_bytes = 1 << 20;
  for (const char* const source :
       {"{% set x = 'a' * 2 ** 40 %}", "{% set x = [1] * 2 ** 40 %}", "{% set x = 'a' * 9223372036854775807 %}",
        "{% set x = 'a'.ljust(2 ** 40) %}", "{% set x = 'a'.zfill(2 ** 62) %}", "{% set x = 'a' | center(2 ** 40) %}",
        "{% set x = 'a' | indent(2 ** 40) %}", "{{ [1] | tojson(indent=2 ** 40) }}",
        "{% set x = ('a' * 1000) | replace('a', 'b' * 100000) %}",
        "{% set x = ('a' * 1000).replace('', 'b' * 100000) %}", "{% set x = ('b' * 100000).join('a' * 1000) %}",
        "{% set x = ('a' * 1000) | join('b' * 100000) %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set x = ('a,' * 300000).split(',') %}", "{% set x = 'a' * 900000 %}{% set y = x | list %}",
        "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append(i) %}{% endfor %}",
        "{% set d = {} %}{% for i in range(100000) %}{% set _ = d.update({i: i}) %}{% endfor %}",
        "{% set x = ('<' * 300000) | e %}"}) {
    const Error error = error_of(source, Json::object(), limits);
    EXPECT_THAT(error.text(), HasSubstr("(limit: memory of values)")) << source;
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
}

TEST(TemplateLimits, WidthOutputAndRange) {
  EXPECT_THAT(error_of("{{ '%999999999s' % 1 }}").text(), HasSubstr("(limit: width)"));
  EXPECT_THAT(error_of("{{ '%.999999999f' % 1 }}").text(), HasSubstr("(limit: width)"));
  EXPECT_THAT(error_of("{{ range(10 ** 12) }}").text(), HasSubstr("(limit: range)"));
  EXPECT_THAT(error_of("{{ range(-9223372036854775807, 9223372036854775807, 2) }}").text(),
              HasSubstr("(limit: range)"));
  Limits limits;
  limits.output_bytes = 1000;
  EXPECT_THAT(error_of("{% for i in range(500) %}abc{% endfor %}", Json::object(), limits).text(),
              HasSubstr("(limit: output)"));
}

}  // namespace
}  // namespace terrace::text::jinja
