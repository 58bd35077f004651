// What the interpreter makes of templates, against what jinja2 made of them: each feature by tests/data/templates
// (own), the templates of public models by third-party vectors.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "coordinator/text/jinja/template.h"
#include "tests/test_data.h"

namespace terrace::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

Result<Rendered> render(const std::string& source, const Json& variables, const RenderOptions& options = {}) {
  TERRACE_ASSIGN_OR_RETURN(const Template made, Template::compile(source));
  return made.render(variables, options);
}

// One test for each feature of the file, so that a failure says which.
class Language : public ::testing::TestWithParam<const char*> {};

TEST_P(Language, RendersAsJinja2Does_AndRefusesWhatItRefuses) {
  const Json file = read_json(test::data_dir() / "templates" / "language.json");
  int n = 0;
  for (const Json& row : file["cases"]) {
    if (row["feature"] != GetParam()) continue;
    ++n;
    const std::string source = row["source"];
    const auto made = render(source, file["context"]);
    if (row["expect"].is_null()) {
      ASSERT_FALSE(made.ok()) << source << " gives " << made->text;
      EXPECT_FALSE(made.error().text().empty()) << source;
    } else {
      ASSERT_TRUE(made.ok()) << source << ": " << made.error().text();
      EXPECT_EQ(made->text, row["expect"]) << source;
    }
  }
  EXPECT_GT(n, 5);
}

INSTANTIATE_TEST_SUITE_P(Features, Language,
                         ::testing::Values("whitespace", "literals", "operators", "lookup", "scopes", "loops", "macros",
                                           "filters", "tojson", "tests", "methods", "errors", "syntax"),
                         [](const auto& each) { return std::string(each.param); });

// Templates of public models, in the environment of Hugging Face's transformers.
TEST(GoldenTemplates, EveryCase_IsRenderedByteForByte) {
  const auto dir = test::third_party_dir() / "golden" / "templates";
  if (!std::filesystem::exists(dir / "cases.json")) GTEST_SKIP() << "no " << dir / "cases.json";
  const Json file = read_json(dir / "cases.json");
  std::map<std::string, Template> templates;
  for (const auto& [name, about] : file["templates"].items()) {
    const auto bytes = test::read_array<char>(dir / (name + ".jinja"));
    auto made = Template::compile({bytes.data(), bytes.size()});
    ASSERT_TRUE(made.ok()) << name << ": " << made.error().text();
    templates.emplace(name, std::move(*made));
  }
  for (const Json& row : file["cases"]) {
    RenderOptions options;
    options.now = parse_local_time(row["now"].get<std::string>()).value();
    options.said = {"messages", "tools", "documents"};
    const auto made = templates.at(row["template"]).render(row["context"], options);
    if (row.contains("expect_error")) {
      ASSERT_FALSE(made.ok()) << row["id"];
      EXPECT_EQ(made.error().code(), ErrorCode::kRefused) << row["id"];
      EXPECT_EQ(made.error().text(), row["expect_error"]) << row["id"];
    } else {
      ASSERT_TRUE(made.ok()) << row["id"] << ": " << made.error().text();
      EXPECT_EQ(made->text, row["expect"]) << row["id"];
    }
  }
}

TEST(Functions, RaiseException_GivesItsMessageAlone) {
  const auto refused = render("a\n{% if n > 2 %}{{ raise_exception('Only ' ~ n ~ '!') }}{% endif %}", {{"n", 3}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  EXPECT_EQ(refused.error().text(), "Only 3!");
}

TEST(Functions, StrftimeNow_FormatsTheGivenTimeInEnglish) {
  RenderOptions options;
  options.now = parse_local_time("2026-03-04T05:06:07").value();
  const auto text = [&](const std::string& format) {
    return render("{{ strftime_now(f) }}", {{"f", format}}, options).value().text;
  };
  EXPECT_EQ(text("%Y-%m-%d %H:%M:%S"), "2026-03-04 05:06:07");
  EXPECT_EQ(text("%d %b %Y, %A %a %B"), "04 Mar 2026, Wednesday Wed March");
  EXPECT_EQ(text("%-d/%e|%I %p|%j|%y|%%|%f%z%Z|é"), "4/ 4|05 AM|063|26|%|000000|é");
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("100%"), "100%");
  EXPECT_FALSE(render("{{ strftime_now('%9999d') }}", Json::object(), options).ok());
  EXPECT_FALSE(render("{{ strftime_now('%Q') }}", Json::object(), options).ok());
  EXPECT_FALSE(render("{{ strftime_now(1) }}", Json::object(), options).ok());
}

TEST(Functions, LocalTime_IsReadInOneForm) {
  EXPECT_EQ(parse_local_time("2026-03-14T15:09:26").value().tm_wday, 6);
  for (const char* const wrong : {"", "2026-03-14", "2026-03-14 15:09:26", "2026-02-30T00:00:00", "2026-03-14T25:00:00",
                                  "2026-03-14T15:09:26Z", "x"})
    EXPECT_FALSE(parse_local_time(wrong).ok()) << wrong;
}

TEST(Functions, FromJson_GivesTheValue) {
  EXPECT_EQ(render(R"({{ ('{"a": [1, 2.5, null]}' | from_json).a }})", Json::object()).value().text, "[1, 2.5, None]");
  EXPECT_FALSE(render("{{ '{' | from_json }}", Json::object()).ok());
}

TEST(Variables, KeepTheirOrderAndKinds) {
  const Json variables = Json::parse(R"({"v": {"z": 1, "a": [null, true, -5, 9007199254740993, 1.0, "x"]}})");
  EXPECT_EQ(render("{{ v }}", variables).value().text, "{'z': 1, 'a': [None, True, -5, 9007199254740993, 1.0, 'x']}");
  EXPECT_EQ(render("{{ v | tojson }}", variables).value().text,
            R"({"z": 1, "a": [null, true, -5, 9007199254740993, 1.0, "x"]})");
}

// A template may change its lists; the next rendering sees them as they were.
TEST(Variables, ARenderingLeavesThemAsTheyWere) {
  const Template made = Template::compile("{% set _ = l.append(3) %}{{ l }}").value();
  const Json variables = {{"l", {1, 2}}};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(made.render(variables, {}).value().text, "[1, 2, 3]");
}

TEST(Variables, ReadsTellsNames) {
  const Template made = Template::compile("{% if tools %}{% macro f(x) %}{{ y.z }}{% endmacro %}{% endif %}").value();
  EXPECT_TRUE(made.reads("tools"));
  EXPECT_TRUE(made.reads("y"));
  EXPECT_FALSE(made.reads("z"));
  EXPECT_FALSE(made.reads("messages"));
}

}  // namespace
}  // namespace terrace::text::jinja
