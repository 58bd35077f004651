// terrace-render-templates: for tests in Python. Reads a JSON object a line {"source", "context"} and writes a line for
// each: {"text"}, or {"error", "code"}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/text/jinja/template.h"

namespace {

using Json = nlohmann::ordered_json;
using terrace::text::jinja::Template;

Json rendered(const Json& row) {
  const auto refused = [](const terrace::Error& error) {
    return Json{{"error", error.text()}, {"code", terrace::name(error.code())}};
  };
  const auto made = Template::compile(row.at("source").get<std::string>());
  if (!made.ok()) return refused(made.error());
  const auto text = made->render(row.at("context"), {});
  return text.ok() ? Json{{"text", text->text}} : refused(text.error());
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << rendered(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  return std::cout.good() ? 0 : 1;
}
