#include "common/base/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "common/base/library_settings.h"

namespace terrace {

Environment Environment::of_process() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return Environment(std::move(variables));
}

std::optional<std::string> Environment::get(const std::string& name) const {
  const auto it = variables_.find(name);
  if (it == variables_.end() || it->second.empty()) return std::nullopt;
  return it->second;
}

void set_in_environment(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

}  // namespace terrace
