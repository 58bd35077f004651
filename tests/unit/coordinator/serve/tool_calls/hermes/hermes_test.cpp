#include "coordinator/serve/tool_calls/hermes/hermes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::serve::tool_calls {
namespace {

// What the deltas of a reply come to, as one line: "R(thought)C(content)N0(name)A0(arguments)"; neighbours of one kind
// are joined.
std::string summary(const std::vector<Delta>& deltas) {
  std::string line;
  std::string last;
  for (const Delta& delta : deltas) {
    const char kind = "CRNA"[static_cast<int>(delta.kind)];
    std::string head(1, kind);
    if (kind == 'N' || kind == 'A') head += std::to_string(delta.call);
    if (head == last && kind != 'N') {
      line.pop_back();
    } else {
      line += head + "(";
    }
    line += delta.text + ")";
    last = head;
  }
  return line;
}

std::string parse(const std::vector<std::string_view>& pieces, const ParserOptions& options) {
  const auto parser = make_hermes_parser(options);
  std::vector<Delta> deltas;
  for (const std::string_view piece : pieces) parser->push(piece, deltas);
  parser->finish(deltas);
  for (const Delta& delta : deltas) EXPECT_FALSE(delta.text.empty());
  return summary(deltas);
}

constexpr ParserOptions kBoth{.tools = true, .reasoning = true, .in_reasoning = false};
constexpr ParserOptions kThinking{.tools = true, .reasoning = true, .in_reasoning = true};
constexpr ParserOptions kNeither{};

struct Case {
  const char* what;
  const char* reply;
  const char* expected;
  ParserOptions options = kBoth;
};

const Case kCases[] = {
    {"plain text", "Hello, world.\n", "C(Hello, world.\n)"},
    {"nothing", "", ""},
    {"white space alone", " \n", "C( \n)"},
    {"a call", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", "N0(f)A0({\"x\": 1})"},
    {"text before a call", "I look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "C(I look.)N0(f)A0({})"},
    {"two calls and text",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a}b\\\"{\"}}\n</tool_call>\n<tool_call>\n{\"name\": "
     "\"g\", "
     "\"arguments\": {\"l\": [1, {\"m\": null}]}}\n</tool_call>\nDone.",
     "N0(f)A0({\"s\": \"a}b\\\"{\"})N1(g)A1({\"l\": [1, {\"m\": null}]})C(Done.)"},
    {"arguments before the name", "<tool_call>{\"arguments\":{\"x\":[]},\"name\":\"f\"}</tool_call>",
     "N0(f)A0({\"x\":[]})"},
    {"arguments as a string", "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}</tool_call>",
     "N0(f)A0({\"x\":1})"},
    {"no arguments", "<tool_call>{\"name\":\"f\"}</tool_call>", "N0(f)A0({})"},
    {"other keys", "<tool_call>{\"id\":7,\"name\":\"f\",\"x\":[{}],\"arguments\":{}, \"y\":-1.5e3}</tool_call>",
     "N0(f)A0({})"},
    {"a name within arguments", "<tool_call>{\"arguments\":{\"name\":\"no\"},\"name\":\"f\"}</tool_call>",
     "N0(f)A0({\"name\":\"no\"})"},
    {"characters beyond ASCII",
     "Größe: <tool_call>{\"name\":\"größe\",\"arguments\":{\"ort\":\"Zürich 🏔\"}}</tool_call> ✓",
     "C(Größe:)N0(größe)A0({\"ort\":\"Zürich 🏔\"})C(✓)"},
    {"an escaped name", "<tool_call>{\"name\":\"\\u0066\",\"arguments\":{}}</tool_call>", "N0(f)A0({})"},
    {"an end mark within a string", "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"</tool_call>\"}}</tool_call>",
     "N0(f)A0({\"x\":\"</tool_call>\"})"},
    {"a brace too many", "<tool_call>{\"name\":\"f\",\"arguments\":{}}}\n</tool_call>ok", "N0(f)A0({})C(ok)"},
    {"no end mark", "<tool_call>{\"name\":\"f\",\"arguments\":{}}\nso it is\n", "N0(f)A0({})C(so it is)"},
    {"no end mark before another call",
     "<tool_call>{\"name\":\"f\",\"arguments\":{}} <tool_call>{\"name\":\"g\",\"arguments\":{}}",
     "N0(f)A0({})N1(g)A1({})"},
    {"cut within arguments", "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\": [1, 2", "N0(f)A0({\"x\": [1, 2)"},
    {"cut before the name", "a<tool_call>{\"na", "C(a<tool_call>{\"na)"},
    {"cut within a mark", "a <tool_ca", "C(a <tool_ca)"},
    {"what only looks like a mark", "a <tool_cat> b", "C(a <tool_cat> b)"},
    {"no JSON", "<tool_call>f(x)</tool_call>", "C(<tool_call>f(x)</tool_call>)"},
    {"an array", "<tool_call>[1]</tool_call>", "C(<tool_call>[1]</tool_call>)"},
    {"JSON that breaks before the name", "<tool_call>{name: 1}</tool_call>", "C(<tool_call>{name: 1}</tool_call>)"},
    {"JSON that breaks within arguments", "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":tru}}</tool_call>z",
     "N0(f)A0({\"x\":tru)C(z)"},
    {"no name", "<tool_call>{\"arguments\":{}}</tool_call>", "C(<tool_call>{\"arguments\":{}}</tool_call>)"},
    {"a name that is no string", "<tool_call>{\"name\":1}", "C(<tool_call>{\"name\":1})"},
    {"an empty name", "<tool_call>{\"name\":\"\"}", "C(<tool_call>{\"name\":\"\"})"},
    {"two names", "<tool_call>{\"name\":\"f\",\"name\":\"g\"}", "C(<tool_call>{\"name\":\"f\",\"name\":\"g\"})"},
    {"reasoning", "<think>\nHm.\n</think>\n\nYes.", "R(Hm.)C(Yes.)"},
    {"empty reasoning", "<think>\n\n</think>\n\nYes.", "C(Yes.)"},
    {"reasoning after white space", "\n<think>a < b</think>c", "R(a < b)C(c)"},
    {"reasoning and a call", "<think>x</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "R(x)N0(f)A0({})"},
    {"reasoning that is cut", "<think>so and </thi", "R(so and </thi)"},
    {"reasoning later in the text", "No <think>x</think>", "C(No <think>x</think>)"},
    {"reasoning that the prompt began", "\nHm. </think> Yes", "R(Hm.)C(Yes)", kThinking},
    {"nothing is looked for", "<think>x</think> <tool_call>{}", "C(<think>x</think> <tool_call>{})", kNeither},
};

TEST(HermesParser, Replies_AreSplit) {
  for (const Case& c : kCases) EXPECT_EQ(parse({c.reply}, c.options), c.expected) << c.what;
}

TEST(HermesParser, EachSplitIntoTwo_GivesTheSame) {
  for (const Case& c : kCases) {
    const std::string_view reply = c.reply;
    for (std::size_t n = 0; n <= reply.size(); ++n)
      EXPECT_EQ(parse({reply.substr(0, n), reply.substr(n)}, c.options), c.expected) << c.what << ", cut at " << n;
  }
}

TEST(HermesParser, ByteByByteAndRandomSplits_GiveTheSame) {
  constexpr unsigned kSeed = 4711;
  std::mt19937 random(kSeed);
  for (const Case& c : kCases) {
    const std::string_view reply = c.reply;
    for (std::size_t longest : {1U, 2U, 3U, 5U, 9U, 20U}) {
      std::vector<std::string_view> pieces;
      for (std::size_t at = 0; at < reply.size();) {
        const std::size_t n = longest == 1 ? 1 : 1 + random() % longest;
        pieces.push_back(reply.substr(at, n));
        at += n;
      }
      EXPECT_EQ(parse(pieces, c.options), c.expected) << c.what << ", pieces up to " << longest << ", seed " << kSeed;
    }
  }
}

TEST(HermesParser, Arguments_AreGivenAsTheyCome) {
  const auto parser = make_hermes_parser(kBoth);
  std::vector<Delta> deltas;
  parser->push("<tool_call>{\"name\":\"f\",\"arguments\":{\"x\"", deltas);
  EXPECT_EQ(summary(deltas), "N0(f)A0({\"x\")");
  parser->push(":\"y", deltas);
  EXPECT_EQ(summary(deltas), "N0(f)A0({\"x\":\"y)");
}

TEST(HermesParser, TextThatCannotBeAMark_IsNotHeldBack) {
  const auto parser = make_hermes_parser(kBoth);
  std::vector<Delta> deltas;
  parser->push("Hello", deltas);
  EXPECT_EQ(summary(deltas), "C(Hello)");
  parser->push(" <to", deltas);
  EXPECT_EQ(summary(deltas), "C(Hello)");
  parser->push("p>", deltas);
  EXPECT_EQ(summary(deltas), "C(Hello <top>)");
}

TEST(HermesTools, AreToldInTheMessages) {
  using Json = nlohmann::ordered_json;
  Json messages = Json::parse(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": 1}}}]},
      {"role": "tool", "content": "r", "tool_call_id": "1"}, {"role": "tool", "content": "s", "tool_call_id": "2"},
      {"role": "user", "content": "b"}])");
  Json history = messages;
  tell_hermes_tools(history, Json::array());
  EXPECT_EQ(history, Json::parse(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>"},
      {"role": "user", "content": "<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</tool_response>"},
      {"role": "user", "content": "b"}])"));
  tell_hermes_tools(messages, Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_THAT(messages[0]["content"].get<std::string>(),
              testing::HasSubstr(R"({"type":"function","function":{"name":"f"}})"));
  Json with_system = Json::parse(R"([{"role": "system", "content": "S"}])");
  tell_hermes_tools(with_system, Json::array({Json::object()}));
  EXPECT_THAT(with_system[0]["content"].get<std::string>(), testing::StartsWith("S\n\nYou may call"));
}

}  // namespace
}  // namespace terrace::serve::tool_calls
