// Recorded requests and answers of a llama-server: ours has its status, its keys and their types. A difference that is
// meant stands in kMeant with its reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "coordinator/serve/api/generation.h"
#include "coordinator/serve/api/information.h"
#include "tests/test_data.h"
#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::serve::api {
namespace {

using test::Json;

struct Recording {
  std::string method, path, body;
  int status = 0;
  std::string answer;
};

Recording read_recording(const std::filesystem::path& file) {
  std::ifstream in(file);
  Recording recording;
  std::string line;
  std::getline(in, line);
  std::istringstream first(line.substr(2));
  first >> recording.method >> recording.path;
  while (std::getline(in, line) && line.starts_with(">"))
    if (line.starts_with("> {") || line.starts_with("> not")) recording.body = line.substr(2);
  std::getline(in, line);
  recording.status = std::stoi(line.substr(line.find(' ')));
  while (std::getline(in, line) && !line.empty()) {
  }
  std::stringstream rest;
  rest << in.rdbuf();
  recording.answer = rest.str();
  while (recording.answer.ends_with("\n\n")) recording.answer.pop_back();
  return recording;
}

// Where we differ on purpose: another status, or nothing that is answered here.
const std::map<std::string, int>& meant() {
  static const std::map<std::string, int> all = {
      {"err_bad_json", 400},             // a body that is no JSON is the client's fault, not the server's
      {"err_bad_json_chat", 400},        // likewise
      {"err_chat_bad_role", 400},        // likewise
      {"detokenize_bad", 400},           // likewise
      {"detokenize_out_of_range", 400},  // likewise
      {"completion_empty_prompt", 400},  // there is nothing to go on from
      {"completion_probs_post", 400},    // post_sampling_probs is not supported
  };
  return all;
}

// Answered elsewhere: by the HTTP server, or by files that the recording has cut.
bool is_ours(const std::string& name, const Recording& recording) {
  static const std::set<std::string> paths = {"/completion",
                                              "/v1/completions",
                                              "/v1/chat/completions",
                                              "/tokenize",
                                              "/detokenize",
                                              "/apply-template",
                                              "/v1/models",
                                              "/models",
                                              "/props",
                                              "/slots",
                                              "/slots?fail_on_no_slot=1"};
  const bool by_server = name.starts_with("auth_") || name.ends_with("_loading") || name.ends_with("_off") ||
                         name == "wrong_method" || name == "options_cors" || name.starts_with("props_post");
  const bool cut = recording.body.find("... (") != std::string::npos;
  return paths.contains(recording.path) && !by_server && !cut;
}

SchedulerStatus slots_status(const std::string& name) {
  SchedulerStatus status;
  status.context = 512;
  SlotStatus slot;
  if (name.starts_with("slots_busy")) {
    slot.state = SlotState::kDecoding;
    const test::Server server;
    const auto read = read_generation(Route::kCompletion, R"({"prompt":"a"})", server.context, "id");
    slot.note = read.generation->requests.front().note;
  }
  status.slots.push_back(slot);
  return status;
}

struct Found {
  int status;
  std::string body;
};

Found ask(const std::string& name, const Recording& recording, const test::Server& server) {
  const auto of_reply = [](const Reply& reply) { return Found{reply.status, reply.body}; };
  const auto of_played = [&](Route route) {
    // As many tokens as the recording was asked for, so that chunks are as many.
    const Json body = Json::parse(recording.body, nullptr, false);
    std::size_t n = 2;
    for (const char* key : {"max_tokens", "n_predict"})
      if (body.is_object() && body.contains(key) && body[key].is_number_unsigned() && body[key] < 10) n = body[key];
    test::Script script{.pieces = std::vector<std::string>(n, "x")};
    if (body.is_object() && body.contains("stop")) script.reason = EndReason::kStop;
    const test::Played played = test::play(route, recording.body, server, script);
    return Found{played.status, played.bytes};
  };
  if (recording.path == "/completion") return of_played(Route::kCompletion);
  if (recording.path == "/v1/completions") return of_played(Route::kTextCompletions);
  if (recording.path == "/v1/chat/completions") return of_played(Route::kChatCompletions);
  if (recording.path == "/tokenize") return of_reply(tokenize(recording.body, server.context));
  if (recording.path == "/detokenize") return of_reply(detokenize(recording.body, server.context));
  if (recording.path == "/apply-template") return of_reply(apply_template(recording.body, server.context));
  if (recording.path == "/props") return of_reply(props(server.context));
  if (recording.path.starts_with("/slots"))
    return of_reply(slots(server.context, slots_status(name), recording.path.ends_with("=1")));
  return of_reply(models(server.context));
}

std::string kind(const Json& value) { return value.is_number() ? "number" : value.type_name(); }

void compare(const Json& theirs, const Json& ours, const std::string& path) {
  ASSERT_EQ(kind(theirs), kind(ours)) << path;
  if (theirs.is_object()) {
    for (const auto& [key, value] : theirs.items()) {
      const std::string inner = path + "." + key;
      if (!ours.contains(key)) {
        ADD_FAILURE() << inner << " is missing";
        continue;
      }
      compare(value, ours[key], inner);
    }
    for (const auto& [key, value] : ours.items())
      EXPECT_TRUE(theirs.contains(key) || key == "param" || key == "seed" || key == "state") << path << "." << key;
  } else if (path == ".tokens" && ours.empty()) {
    // Of a prompt's progress: theirs is a token 0 that is none.
  } else if (theirs.is_array() && !theirs.empty()) {
    ASSERT_FALSE(ours.empty()) << path;
    compare(theirs[0], ours[0], path + "[0]");
  }
}

std::vector<Json> documents(const std::string& answer) {
  return answer.starts_with("data: ") ? test::events_of(answer + (answer.ends_with("\n\n") ? "" : "\n"))
                                      : std::vector{Json::parse(answer)};
}

TEST(RecordedShapes, OursHaveTheirKeysTypesAndStatus) {
  const auto folder = terrace::test::third_party_dir() / "facts" / "http_shapes";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no recordings in " << folder;
  test::Server server;
  server.context.n_slots = 1;
  std::size_t n_compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    const Recording recording = read_recording(entry.path());
    if (!is_ours(name, recording)) continue;
    SCOPED_TRACE(name);
    ++n_compared;
    const Found found = ask(name, recording, server);
    if (const auto other = meant().find(name); other != meant().end()) {
      EXPECT_EQ(found.status, other->second) << found.body;
      continue;
    }
    EXPECT_EQ(found.status, recording.status) << found.body;
    if (found.status != recording.status) continue;
    const auto theirs = documents(recording.answer);
    const auto ours = documents(found.body);
    EXPECT_EQ(theirs.size(), ours.size());
    for (std::size_t i = 0; i < std::min(theirs.size(), ours.size()); ++i) compare(theirs[i], ours[i], "");
  }
  EXPECT_GE(n_compared, 40U);
}

}  // namespace
}  // namespace terrace::serve::api
