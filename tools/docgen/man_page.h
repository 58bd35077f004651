// The manual pages.
#pragma once

#include <string>

#include "tools/docgen/programs.h"

namespace terrace::docgen {

// terrace(1): a section for each command with the options that are its own, and one with those that several share.
std::string terrace_page(const Programs& programs);
std::string node_page(const Programs& programs);

}  // namespace terrace::docgen
