// The process's environment variables as a value. Read once in main() and passed down; environment.cpp is the only
// file that looks at the real ones, and a test says so.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace terrace {

class Environment {
 public:
  // Nothing is set: what tests start from.
  Environment() = default;
  explicit Environment(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {}

  // A copy of what the process has now. Call it before threads start.
  static Environment of_process();

  // Nothing where the variable is absent or empty.
  std::optional<std::string> get(const std::string& name) const;
  const std::map<std::string, std::string>& variables() const { return variables_; }

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace terrace
