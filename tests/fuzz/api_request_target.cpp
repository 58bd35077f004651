// Bodies of the JSON routes: the first byte chooses the route, the rest is the body. Whatever it is, the answer is JSON
// with a status that a client can act on, or requests that a scheduler can take.
#include <array>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "coordinator/serve/api/information.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::fuzz {
namespace {

namespace api = serve::api;

const api::test::Server& server() {
  static const api::test::Server server;
  return server;
}

void check_answer(int status, const std::string& body) {
  TERRACE_CHECK(status == 200 || status == 400 || status == 501, "a status that nobody expects");
  const auto json = nlohmann::json::parse(body, nullptr, false);
  TERRACE_CHECK(!json.is_discarded(), "an answer that is no JSON");
  if (status != 200) TERRACE_CHECK(!json["error"]["message"].get<std::string>().empty(), "an error without why");
}

void generate(api::Route route, const std::string& body) {
  const api::ReadGeneration read = api::read_generation(route, body, server().context, "id");
  if (read.refusal) return check_answer(read.refusal->status, read.refusal->body);
  TERRACE_CHECK(!read.generation->requests.empty(), "nothing to run");
  for (const serve::Request& request : read.generation->requests) {
    TERRACE_CHECK(!request.prompt.empty() && request.prompt.size() < server().context.context_tokens,
                  "a prompt's size");
    TERRACE_CHECK(sampler::validate(request.sampling).ok(), "sampling options out of range");
  }
  const api::test::Played played = api::test::play(route, body, server());
  TERRACE_CHECK(played.finished, "an answer without an end");
  if (!read.generation->stream) check_answer(played.status, played.bytes);
}

void answer(const api::Reply& reply) { check_answer(reply.status, reply.body); }

constexpr std::array kGenerating{api::Route::kChatCompletions, api::Route::kTextCompletions, api::Route::kCompletion,
                                 api::Route::kResponses, api::Route::kMessages};

}  // namespace

void run_target(std::span<const std::byte> input) {
  if (input.empty()) return;
  const std::string body(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  const auto route = std::to_integer<unsigned>(input[0]) % 10;
  if (route < kGenerating.size()) return generate(kGenerating[route], body);
  if (route == 5) return answer(api::tokenize(body, server().context));
  if (route == 6) return answer(api::detokenize(body, server().context));
  if (route == 7) return answer(api::apply_template(body, server().context));
  if (route == 8) return answer(api::count_tokens(body, server().context));
  const api::ReadSlotCommand read = api::read_slot_command("0", "save", body, server().context);
  if (read.refusal) answer(*read.refusal);
}

std::vector<Seed> make_seeds() {
  struct Named {
    const char* name;
    char route;
    const char* body;
  };
  std::vector<Seed> seeds;
  for (
      const Named& seed : {
          Named{
              "chat", '\0',
              R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":2,"n":2})"},
          {"chat-tools", '\0',
           R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}}}],"tool_choice":"required"})"},
          {"chat-schema", '\0',
           R"({"messages":[],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"a":{"enum":[1,"x"]}}}}}})"},
          {"text", '\1',
           R"({"prompt":["a",[104,105]],"max_tokens":4,"echo":true,"stop":["x","y"],"logit_bias":{"10":-100}})"},
          {"completion", '\2',
           R"({"prompt":["a",10,"b"],"n_predict":3,"temperature":0.5,"top_k":4,"seed":7,"grammar":"root ::= [a-z]+","return_progress":true,"stream":true})"},
          {"responses", '\3',
           R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"r"}],"text":{"format":{"type":"json_object"}},"stream":true})"},
          {"messages", '\4',
           R"({"system":"s","max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}]})"},
          {"tokenize", '\5', R"({"content":"h\u00e9<|im_end|>","with_pieces":true})"},
          {"detokenize", '\6', R"({"tokens":[97,195,257]})"},
          {"template", '\7',
           R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"enable_thinking":true}})"},
          {"count", '\10', R"({"messages":[{"role":"user","content":"a"}],"system":[{"type":"text","text":"s"}]})"},
          {"slot", '\11', R"({"filename":"a.bin"})"},
      }) {
    seeds.push_back({std::string(seed.name) + ".json", to_bytes(std::string(1, seed.route) + seed.body)});
  }
  return seeds;
}

}  // namespace terrace::fuzz
