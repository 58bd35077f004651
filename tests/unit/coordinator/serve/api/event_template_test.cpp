// Events that are filled in as text are, byte for byte, those that the JSON library writes.
#include "coordinator/serve/api/event_template.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "coordinator/serve/api/answer_parts.h"
#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::serve::api {
namespace {

using test::Script;

// A piece for each of the ways in which JSON writes a character.
const Script kScript{
    .pieces = {"plain", " \"quoted\" \\ ", "\n\t\x01", "\x7f", "d\xc3\xa9j\xc3\xa0 \xf0\x9f\x98\x80", "/"},
    .reason = EndReason::kEos};

test::Json body_of(Route route, const test::Json& fields) {
  test::Json body = route == Route::kCompletion || route == Route::kTextCompletions ? test::Json{{"prompt", "hi"}}
                    : route == Route::kResponses
                        ? test::Json{{"input", "hi"}}
                        : test::Json{{"messages", test::Json::array({{{"role", "user"}, {"content", "hi"}}})}};
  if (route == Route::kMessages) body["max_tokens"] = 100;
  body["stream"] = true;
  body.update(fields);
  return body;
}

TEST(AppendJson, AnyBytes_AreAsTheLibraryWritesThem) {
  std::mt19937 random(20261130);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 8, ' ');
    const bool ascii = i % 2 == 0;
    for (char& c : text) c = static_cast<char>(ascii ? random() % 128 : random());
    std::string out = "before ";
    append_json(out, text);
    EXPECT_EQ(out, "before " + dump(Json(text))) << i;
  }
}

TEST(EventTemplate, ValuesOfEachKind_StandWhereTheJsonHasThem) {
  constexpr std::string_view kOpen = EventTemplate::kOpen;
  const Json open{{"a", kOpen}, {"b", Json{{"c", kOpen}, {"d", nullptr}}}, {"e", kOpen}};
  const EventTemplate form(event("x", open), 3);
  std::string out;
  form.append_to(out, "\"\n", std::uint64_t{~0ULL}, std::vector<std::int32_t>{1, -2});
  form.append_to(out, "", 0U, std::vector<std::int32_t>());
  EXPECT_EQ(out, event("x", {{"a", "\"\n"}, {"b", Json{{"c", ~0ULL}, {"d", nullptr}}}, {"e", {1, -2}}}) +
                     event("x", {{"a", ""}, {"b", Json{{"c", 0}, {"d", nullptr}}}, {"e", Json::array()}}));
}

// What is read and written again is the same text: no byte is out of order or escaped in another way.
TEST(StreamedText, OfEachRoute_IsWrittenAsTheLibraryWritesIt) {
  const test::Server server;
  for (const Route route :
       {Route::kChatCompletions, Route::kTextCompletions, Route::kCompletion, Route::kResponses, Route::kMessages}) {
    const std::string bytes = test::play(route, body_of(route, test::Json::object()), server, kScript).bytes;
    std::size_t n = 0;
    for (std::size_t at = bytes.find("data: {"); at != std::string::npos; at = bytes.find("data: {", at), ++n) {
      at += 6;
      const std::string line = bytes.substr(at, bytes.find('\n', at) - at);
      EXPECT_EQ(dump(Json::parse(line)), line) << static_cast<int>(route);
    }
    EXPECT_GE(n, kScript.pieces.size()) << static_cast<int>(route);
  }
}

// With timings each event is a tree of values, without them it is filled in: the rest is equal.
TEST(StreamedText, WithAndWithoutTimings_IsTheSameButForThem) {
  for (const Route route : {Route::kChatCompletions, Route::kTextCompletions, Route::kCompletion}) {
    const auto events = [&](bool timings) {
      const test::Server server;  // ids begin anew
      auto all = test::events_of(
          test::play(route, body_of(route, {{"timings_per_token", timings}, {"seed", 1}}), server, kScript).bytes);
      std::erase_if(all, [](const test::Json& e) { return !e.is_object(); });
      for (test::Json& e : all) {
        e.erase("timings");
        if (e.contains("generation_settings")) e["generation_settings"].erase("timings_per_token");
      }
      return test::Json(all).dump();
    };
    EXPECT_EQ(events(false), events(true)) << static_cast<int>(route);
  }
}

}  // namespace
}  // namespace terrace::serve::api
