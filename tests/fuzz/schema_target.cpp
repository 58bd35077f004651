// A JSON schema, which a request carries: compiled, and followed for some tokens; what may end is JSON.
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "tests/fuzz/follow_grammar.h"
#include "tests/fuzz/fuzz_target.h"

namespace terrace::fuzz {

void run_target(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto grammar = sampler::Grammar::from_json_schema(text);
  if (!grammar.ok()) {
    TERRACE_CHECK(grammar.error().text().starts_with("schema"), "an error without its place");
    return;
  }
  follow_grammar(*grammar, input.size(), 24,
                 [](const std::string& written) { TERRACE_CHECK(nlohmann::json::accept(written), written.c_str()); });
}

std::vector<Seed> make_seeds() {
  const struct {
    const char* name;
    const char* text;
  } seeds[] = {
      {"object",
       R"({"type":"object","properties":{"a":{"type":"string","maxLength":3},"b":{"enum":[1,"x",null]},"c":{"type":)"
       R"("array","items":{"type":"integer","minimum":-5,"maximum":99},"maxItems":2}},"required":["b"],)"
       R"("additionalProperties":{"type":"boolean"}})"},
      {"numbers", R"({"anyOf":[{"type":"number","minimum":-0.5,"exclusiveMaximum":12.25},{"type":"integer"},true]})"},
      {"recursive",
       R"({"$ref":"#/$defs/n","$defs":{"n":{"type":["array","null"],"items":{"$ref":"#/$defs/n"},"maxItems":3}}})"},
      {"strings", R"({"oneOf":[{"type":"object","properties":{"k":{"const":1}},"required":["k"]},{"type":"string",)"
                  R"("pattern":"^[a-c\\d]{1,3}(x|\\.)?$"},{"type":"array","prefixItems":[{"format":"date-time"}]}]})"},
      {"merged",
       R"({"allOf":[{"properties":{"a":{"minLength":1}}},{"required":["a"],"properties":{"a":{"maxLength":2}}}]})"},
  };
  std::vector<Seed> all;
  for (const auto& seed : seeds) {
    const auto grammar = sampler::Grammar::from_json_schema(seed.text);
    TERRACE_CHECK(grammar.ok(), grammar.ok() ? "" : grammar.error().text().c_str());
    all.push_back({seed.name, to_bytes(std::string_view(seed.text))});
  }
  return all;
}

}  // namespace terrace::fuzz
