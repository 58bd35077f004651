// A grammar in GBNF, which a request carries: compiled, and followed for some tokens.
#include "common/base/check.h"
#include "tests/fuzz/follow_grammar.h"
#include "tests/fuzz/fuzz_target.h"

namespace terrace::fuzz {

void run_target(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto grammar = sampler::Grammar::from_gbnf(text);
  if (!grammar.ok()) {
    TERRACE_CHECK(!grammar.error().text().empty(), "an error without why");
    return;
  }
  follow_grammar(*grammar, input.size(), 8, [](const std::string&) {});
}

std::vector<Seed> make_seeds() {
  const struct {
    const char* name;
    const char* text;
  } seeds[] = {
      {"list", "root ::= item (\", \" item)*\nitem ::= [a-z]+ | \"\\\"\" [^\"\\n\\u00e9-\\U0001F600]{0,9} \"\\\"\"\n"},
      {"arithmetic",
       "# sums\nroot ::= sum\nsum ::= product ([+-] product)*\nproduct ::= value ([*/] value)*\n"
       "value ::= [0-9]{1,5} | \"(\" sum \")\"\n"},
      {"counted", "root ::= ((\"a\" | \"b\"?){2,3} \"c\"{4,}){0,5} (x y?){1,2}\nx ::= \"x\" .{2}\ny ::= x | \"\"\n"},
  };
  std::vector<Seed> all;
  for (const auto& seed : seeds) {
    TERRACE_CHECK(sampler::Grammar::from_gbnf(seed.text).ok(), "the seed is a grammar");
    all.push_back({seed.name, to_bytes(std::string_view(seed.text))});
  }
  return all;
}

}  // namespace terrace::fuzz
