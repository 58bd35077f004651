#include "common/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/options.h"

namespace terrace {
namespace {

using ::testing::ElementsAre;

TEST(Logger, LinesBelowTheLevelAreDropped) {
  std::vector<std::string> lines;
  const Logger log = Logger::to_function(LogLevel::kWarn, [&](LogLevel level, std::string_view text) {
    lines.push_back(std::string(name(level)) + " " + std::string(text));
  });
  log.info("not {}", "said");
  log.warn("{} left", 3);
  log.named("box1:9000").error("gone");
  EXPECT_THAT(lines, ElementsAre("warning 3 left", "error box1:9000: gone"));
  EXPECT_FALSE(log.enabled(LogLevel::kInfo));
  Logger::silent().error("nobody hears this");
}

TEST(Logger, TextFromAPeerCannotForgeALine) {
  std::string line;
  const Logger log =
      Logger::to_function(LogLevel::kInfo, [&](LogLevel, std::string_view text) { line = std::string(text); });
  log.info("{}", "a\n12:00:00 error forged\x1b[2J");
  EXPECT_EQ(line, "a\\x0a12:00:00 error forged\\x1b[2J");
}

TEST(Logger, PlainLineHasTimeLevelAndName) {
  ::testing::internal::CaptureStderr();
  Logger::to_stderr({}).named("n").info("{{}} and %v stay as they are");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::MatchesRegex("..:..:...... info n: \\{\\} and %v stay as they are\n"));
  ::testing::internal::CaptureStderr();
  Logger::to_stderr({.timestamps = false}).warn("text");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: text\n");
}

TEST(Logger, JsonLineIsOneObject_WhateverTheText) {
  ::testing::internal::CaptureStderr();
  Logger::to_stderr({.json = true}).named("n").info("{}", "quote \" back \\ bad \xff end");
  const std::string line = ::testing::internal::GetCapturedStderr();
  const nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object["level"], "info");
  EXPECT_EQ(object["name"], "n");
  EXPECT_EQ(object["text"], "quote \" back \\ bad \xef\xbf\xbd end");
  EXPECT_THAT(object["time"].get<std::string>(), ::testing::MatchesRegex("....-..-..T..:..:......Z"));
}

TEST(Logger, LinesOfARequestCarryItsId) {
  ::testing::internal::CaptureStderr();
  Logger::to_stderr({.json = true}).named("n").for_request("re\"q\n1").info("done");
  const nlohmann::json object = nlohmann::json::parse(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(object["request"], "re\"q\n1");
  EXPECT_EQ(object["name"], "n");
  std::vector<std::string> lines;
  const Logger log =
      Logger::to_function(LogLevel::kInfo, [&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  log.for_request("req-5f0c").info("done");
  log.for_request("forged\n2").named("n").info("done");
  log.info("none");
  EXPECT_THAT(lines, ElementsAre("[req-5f0c] done", "[forged\\x0a2] n: done", "none"));
}

TEST(Logger, NoColourWithoutATerminal) {
  EXPECT_FALSE(colour_wanted(Environment(std::map<std::string, std::string>{{"TERM", "xterm"}}), -1));
}

TEST(Logger, OptionsFillTheStruct) {
  OptionTable table("terrace-node", "A node.");
  LogOptions options;
  add_log_options(table, &options);
  const std::vector<std::string> arguments = {"--log-level", "warning", "--log-json"};
  ASSERT_TRUE(table.parse(arguments, Environment()).ok());
  EXPECT_EQ(options.level, LogLevel::kWarn);
  EXPECT_TRUE(options.json);
}

}  // namespace
}  // namespace terrace
