// For libraries that take a setting from nowhere but the environment of the process.
#pragma once

#include <string>

namespace terrace {

// Before threads start, since any library may be reading the environment. In environment.cpp, with all that touches it.
void set_in_environment(const char* name, const std::string& value);

}  // namespace terrace
