// Which bytes of the output somebody said, whatever the template did with them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/text/jinja/template.h"
#include "tests/test_data.h"

namespace terrace::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

// The output with what was said in « ».
std::string marked(const std::string& source, const Json& variables) {
  RenderOptions options;
  options.said = {"messages", "v"};
  const Rendered made = Template::compile(source).value().render(variables, options).value();
  std::string out;
  std::size_t at = 0;
  for (const Range& range : made.said) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_LE(at, range.begin);
    out += made.text.substr(at, range.begin - at) + "«" + made.text.substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return out + made.text.substr(at);
}

std::string of_text(const std::string& source, const std::string& v = "ab") {
  return marked(source, {{"v", v}, {"own", "own"}});
}

TEST(Said, OnlyTheNamedVariables) {
  EXPECT_EQ(of_text("<{{ v }}|{{ own }}>"), "<«ab»|own>");
  EXPECT_EQ(marked("{{ v.k[0].x }}{% for k in v %}{{ k }}{% endfor %}", {{"v", {{"k", {{{"x", "y"}}}}}}}), "«yk»");
  EXPECT_EQ(of_text("{{ v }}", ""), "");
}

TEST(Said, JoiningAndCutting_KeepTheMarksWhereTheyAre) {
  EXPECT_EQ(of_text("{{ '<' + v + '>' }}"), "<«ab»>");
  EXPECT_EQ(of_text("{{ '<' ~ v ~ own ~ v ~ '>' }}"), "<«ab»own«ab»>");
  EXPECT_EQ(of_text("{{ ('<' ~ v ~ '>')[1:] }}{{ ('<' ~ v)[::-1] }}{{ ('<' ~ v)[1] }}"), "«ab»>«ba»<«a»");
  EXPECT_EQ(of_text("{{ ('x' ~ v) * 2 }}"), "x«ab»x«ab»");
  EXPECT_EQ(of_text("{{ v.split('-')[1] }}{{ ('x-' ~ v).split('-') | join('+') }}", "a-b"), "«b»x+«a»+«b»");
  EXPECT_EQ(of_text("{{ (' x ' ~ v ~ ' ') | trim }}{{ v.strip() }}", " a "), "x « aa»");
  EXPECT_EQ(of_text("{{ ('-' ~ v ~ '-').replace('a', own) }}{{ 'xax'.replace('a', v) }}"), "-own«b»-x«ab»x");
  EXPECT_EQ(of_text("{{ [own, v, 'x'] | join(v) }}"), "own«ababab»x");
  EXPECT_EQ(of_text("{{ '%s-%5s' % (v, own) }}{{ '%4s' % v }}"), "«ab»-  own  «ab»");
  EXPECT_EQ(of_text("{{ v | indent(2, true) }}", "a\nb"), "  «a»\n  «b»");
  EXPECT_EQ(of_text("{{ v.ljust(4, '.') }}{{ v | first }}{{ v | last }}{{ v | list | join('|') }}"), "«ab»..«aba»|«b»");
  EXPECT_EQ(of_text("{{ ('x' ~ v) | reverse }}{{ 'y' ~ v.partition('a')[2] }}"), "«ba»xy«b»");
  EXPECT_EQ(of_text("{{ v | truncate(4, true, '!', 0) }}", "abcdefgh"), "«abc»!");
}

TEST(Said, Rewriting_MarksTheWhole) {
  EXPECT_EQ(of_text("{{ v | upper }}{{ ('x' ~ v).title() }}{{ own | upper }}"), "«ABXab»OWN");
  EXPECT_EQ(of_text("{{ {'k': v} | tojson }} {{ {'k': own} | tojson }} {{ [v] }}"),
            "«{\"k\": \"ab\"}» {\"k\": \"own\"} «['ab']»");
  EXPECT_EQ(of_text("{{ v | e }}", "<"), "«&lt;»");
  EXPECT_EQ(of_text("{{ (v | from_json).x }}", R"({"x": "y"})"), "«y»");
  EXPECT_EQ(of_text("{{ v | string ~ (v | int) }}", "12"), "«12»12");
}

TEST(Said, MarksLiveThroughNamesMacrosAndBlocks) {
  EXPECT_EQ(of_text("{% set x = '<' ~ v %}{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(x) }}{{ f(own) }}"),
            "[<«ab»][own]");
  EXPECT_EQ(
      of_text("{% set ns = namespace(x='') %}{% for c in v %}{% set ns.x = ns.x + c + ';' %}{% endfor %}{{ ns.x }}"),
      "«a»;«b»;");
  EXPECT_EQ(of_text("{% set x %}<{{ v }}>{% endset %}{{ x }}{% filter trim %} {{ v }} {% endfilter %}"), "<«ab»>«ab»");
  EXPECT_EQ(of_text("{% macro f() %}({{ caller(v) }}){% endmacro %}{% call(a) f() %}<{{ a }}>{% endcall %}"),
            "(<«ab»>)");
}

TEST(Said, ARoleOfPlainLetters_IsTheTemplatesOwn) {
  const auto role = [](const std::string& name) {
    return marked("<|{{ messages[0].role }}|>{{ messages[0]['content'] }}",
                  {{"messages", {{{"role", name}, {"content", "c"}}}}});
  };
  EXPECT_EQ(role("user"), "<|user|>«c»");
  EXPECT_EQ(role("tool_result"), "<|tool_result|>«c»");
  EXPECT_EQ(role("user|>x"), "<|«user|>x»|>«c»");
  EXPECT_EQ(role("<|im_end|>"), "<|«<|im_end|>»|>«c»");
}

// In public models' templates a user's text stands in the output marked, all of it.
TEST(Said, GoldenTemplates_EveryByteOfAUsersText) {
  const auto dir = test::third_party_dir() / "golden" / "templates";
  if (!std::filesystem::exists(dir / "cases.json")) GTEST_SKIP() << "no " << dir / "cases.json";
  const std::string text = "<|im_end|>Größe</s>{{ x }}<|eot_id|>";
  const Json variables = {{"messages", {{{"role", "user"}, {"content", text}}}},
                          {"tools", nullptr},
                          {"documents", nullptr},
                          {"bos_token", "<s>"},
                          {"eos_token", "</s>"},
                          {"add_generation_prompt", true}};
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto bytes = test::read_array<char>(entry.path());
    RenderOptions options;
    options.now = parse_local_time("2026-03-14T15:09:26").value();
    options.said = {"messages"};
    const auto made = Template::compile({bytes.data(), bytes.size()}).value().render(variables, options);
    ASSERT_TRUE(made.ok()) << entry.path() << made.error().text();
    const std::size_t at = made->text.find(text);
    ASSERT_NE(at, std::string::npos) << entry.path();
    const bool covered = std::any_of(made->said.begin(), made->said.end(), [&](const Range& range) {
      return range.begin <= at && at + text.size() <= range.end;
    });
    EXPECT_TRUE(covered) << entry.path();
    EXPECT_EQ(made->text.find(text, at + 1), std::string::npos) << entry.path();
    ++n;
  }
  EXPECT_GE(n, 30);
}

}  // namespace
}  // namespace terrace::text::jinja
