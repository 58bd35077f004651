// `terrace template`: what a chat template makes of a conversation, as bytes.
#include <gtest/gtest.h>

#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace cli_template_test {

using Ordered = nlohmann::ordered_json;

class TemplateCommand : public ::testing::Test {
 protected:
  Arguments with_input(const Ordered& variables, const Arguments& more = {}) const {
    write_file(dir_ / "in.json", variables.dump());
    Arguments all = {"template", "--input", (dir_ / "in.json").string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Arguments with_source(const std::string& source, const Ordered& variables) const {
    write_file(dir_ / "t.jinja", source);
    return with_input(variables, {"--template", (dir_ / "t.jinja").string()});
  }
  const TempDir dir_;
};

TEST_F(TemplateCommand, TheModelsTemplate_GetsWhatTransformersGives) {
  const Ordered messages = Ordered::parse(R"({"messages": [{"role": "user", "content": "Hi  "}]})");
  const std::string turn = "<|im_start|>user\nHi  <|im_end|>\n";
  EXPECT_EQ(run_terrace(with_input(messages, {"--quiet"})).out, turn);
  Ordered prompt = messages;
  prompt["add_generation_prompt"] = true;
  const Outcome run = run_terrace(with_input(prompt, {"-m", demo_model().string()}));
  EXPECT_EQ(run.out, turn + "<|im_start|>assistant\n");
  EXPECT_EQ(run.err, "");
}

TEST_F(TemplateCommand, AFilesTemplate_GetsWhatIsGiven_AndNothingElse) {
  const Outcome run =
      run_terrace(with_source("{{ tools is defined }}{{ bos_token is defined }}{{ x }}{{ o | tojson }}é\n",
                              Ordered::parse(R"({"x": null, "o": {"z": 1, "a": 2.0}})")));
  EXPECT_EQ(run.out, "FalseFalseNone{\"z\": 1, \"a\": 2.0}é");
  EXPECT_EQ(run.err, "") << "no model is looked for";
  EXPECT_EQ(
      run_terrace({"template", "--input", "-", "--template", (dir_ / "t.jinja").string()}, 0, R"({"x": [1], "o": 2})")
          .exit_code,
      0);
}

TEST_F(TemplateCommand, Now_IsTheTimeThatTheTemplateSees) {
  Arguments arguments = with_source("{{ strftime_now('%d %B %Y %H:%M:%S') }}", Ordered::object());
  arguments.insert(arguments.end(), {"--now", "2026-03-14T15:09:26"});
  EXPECT_EQ(run_terrace(arguments).out, "14 March 2026 15:09:26");
  arguments.back() = "yesterday";
  EXPECT_NE(run_terrace(arguments, 2).err.find("--now: yesterday is no local time"), std::string::npos);
}

TEST_F(TemplateCommand, WhatTheTemplateRaises_IsOnStderr) {
  const Outcome run = run_terrace(with_source("x{{ raise_exception('No ' + r + '!') }}", {{"r", "user"}}), 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "terrace: No user!\n");
}

TEST_F(TemplateCommand, Errors_NameFileLineAndWhatIsWrong) {
  const auto says = [](const Outcome& run, const std::string& text) {
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
  };
  says(run_terrace(with_source("\n{% if %}", Ordered::object()), 1), "t.jinja: line 2: expected an expression");
  says(run_terrace(with_source("\n{{ a.b }}", Ordered::object()), 1), "line 2: 'a' is undefined");
  says(run_terrace(with_source("{{ 'a' * 2 ** 40 }}", Ordered::object()), 1),
       "t.jinja: line 1: the template's values take");
  says(run_terrace(with_source("x", Ordered::array()), 2), "in.json: no JSON object");
  write_file(dir_ / "in.json", "{\"a\": }");
  says(run_terrace({"template", "--input", (dir_ / "in.json").string()}, 2), "in.json: no JSON: byte 7");
  says(run_terrace({"template"}, 2), "--input");
  const std::string deep(1'000'000, '[');
  write_file(dir_ / "in.json", "{\"a\":" + deep + std::string(deep.size(), ']') + ",\"b\":1,\"c\":2}");
  says(run_terrace({"template", "--input", (dir_ / "in.json").string()}, 2),
       "in.json: the JSON is nested deeper than 201 levels");
  says(run_terrace({"template", "--input", (dir_ / "none.json").string()}, 1), "none.json: cannot be opened");
}

// One case of each public template, through the program.
TEST_F(TemplateCommand, GoldenTemplates_AreRenderedByteForByte) {
  const auto golden = third_party_dir() / "golden" / "templates";
  if (!std::filesystem::exists(golden / "cases.json")) GTEST_SKIP() << "no " << golden / "cases.json";
  std::ifstream in(golden / "cases.json");
  const Ordered file = Ordered::parse(in);
  std::set<std::string> seen;
  for (const Ordered& row : file["cases"]) {
    const std::string name = row["template"];
    const bool wanted = row.contains("expect_error") || seen.insert(name).second;
    if (!wanted) continue;
    const Arguments arguments = with_input(
        row["context"], {"--template", (golden / (name + ".jinja")).string(), "--now", row["now"].get<std::string>()});
    const Outcome run = run_program(terrace(arguments));
    if (row.contains("expect_error")) {
      EXPECT_EQ(run.exit_code, 1) << row["id"];
      EXPECT_EQ(run.err, "terrace: " + row["expect_error"].get<std::string>() + "\n") << row["id"];
    } else {
      EXPECT_EQ(run.exit_code, 0) << row["id"] << run.err;
      EXPECT_EQ(run.out, row["expect"]) << row["id"];
    }
  }
}

}  // namespace cli_template_test
}  // namespace terrace::test
