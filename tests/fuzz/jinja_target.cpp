// A chat template, as a model file carries it, and JSON variables behind a line of its own: compiled and rendered
// within small limits. What comes out is UTF-8 and its marks are ranges of it; the same input gives the same again.
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "coordinator/text/jinja/template.h"
#include "tests/fuzz/fuzz_target.h"

namespace terrace::fuzz {
namespace {

namespace jinja = text::jinja;
using Json = nlohmann::ordered_json;

constexpr std::string_view kVariablesMark = "\n--variables--\n";

jinja::RenderOptions options() {
  jinja::RenderOptions options;
  options.limits.steps = 20'000;
  options.limits.value_bytes = 1 << 20;
  options.limits.output_bytes = 1 << 16;
  options.now = jinja::parse_local_time("2026-03-14T15:09:26").value();
  options.said = {"messages"};
  return options;
}

void check_rendered(const jinja::Rendered& made) {
  TERRACE_CHECK(is_utf8(made.text), "a text that is not UTF-8");
  std::size_t at = 0;
  for (const jinja::Range& range : made.said) {
    TERRACE_CHECK(at <= range.begin && range.begin < range.end && range.end <= made.text.size(), "marks out of order");
    TERRACE_CHECK(is_utf8(made.text.substr(range.begin, range.end - range.begin)), "a mark within a character");
    at = range.end;
  }
}

Json variables_of(std::string_view text) {
  Json variables = Json::parse(text, nullptr, false);
  if (variables.is_object()) return variables;
  return {{"messages", {{{"role", "user"}, {"content", "<|im_end|> é"}}}},
          {"s", "text"},
          {"n", 3},
          {"l", {1, "a", nullptr}}};
}

}  // namespace

void run_target(std::span<const std::byte> input) {
  const std::string_view all(reinterpret_cast<const char*>(input.data()), input.size());
  const std::size_t mark = std::min(all.find(kVariablesMark), all.size());
  const auto made = jinja::Template::compile(all.substr(0, mark));
  if (!made.ok()) {
    TERRACE_CHECK(!made.error().text().empty(), "an error without why");
    return;
  }
  const Json variables = variables_of(mark < all.size() ? all.substr(mark + kVariablesMark.size()) : "");
  const auto first = made->render(variables, options()), second = made->render(variables, options());
  TERRACE_CHECK(first.ok() == second.ok(), "the same input, another outcome");
  if (!first.ok()) return;
  check_rendered(*first);
  TERRACE_CHECK(first->text == second->text && first->said == second->said, "the same input, another text");
}

std::vector<Seed> make_seeds() {
  const std::pair<const char*, const char*> texts[] = {
      {"chatml",
       "{%- for m in messages -%}\n{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim }}<|im_end|>\n"
       "{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
      {"tools",
       "{% macro f(t, d=2) %}{{ t.function | tojson(indent=d) }}{% endmacro %}{% if tools %}{% for t in tools if t "
       "is mapping %}{{ f(t) }}{{ loop.index }}{% else %}none{% endfor %}{% endif %}\n--variables--\n"
       "{\"tools\": [{\"function\": {\"name\": \"x\", \"parameters\": {\"a\": [1, 2.5, null, true]}}}]}"},
      {"reasoning",
       "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if loop.first %}{% set ns.last = loop.length "
       "- loop.index0 %}{% endif %}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\\n') "
       "}}{% break %}{% endif %}{% endfor %}{{ ns.last }}"},
      {"filters",
       "{{ l | map('string') | join(', ') | upper }}{{ s | replace('t', 'T') | indent(2, true) }}{{ {'b': 1, 'a': [2]} "
       "| "
       "dictsort }}{{ '%s|%05.2f|%r' % (s, n, l) }}{{ s[::-2] ~ s[1:] }}{{ l | selectattr('x', 'undefined') | list "
       "}}{{ n "
       "** 2 // 3 % 5 - 1 }}{{ l | sort(reverse=true) if false }}{{ strftime_now('%d %b') }}"},
      {"blocks",
       "{% filter upper %}a{% endfilter %}{% set x %}{{ s }}{% endset %}{% call(a) (s) %}{{ a }}{% endcall %}{% raw "
       "%}{{ "
       "{% endraw %}{# c #}{% with a = 1 %}{{ a }}{% endwith %}{% generation %}{{ x }}{% endgeneration %}"},
  };
  std::vector<Seed> seeds;
  for (const auto& [name, text] : texts)
    seeds.push_back({std::string(name) + ".jinja", to_bytes(std::string_view(text))});
  return seeds;
}

}  // namespace terrace::fuzz
