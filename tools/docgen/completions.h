// What shells need to complete the command line: one script a program and shell.
#pragma once

#include <string>

#include "tools/docgen/programs.h"

namespace terrace::docgen {

struct Scripts {
  std::string terrace;
  std::string node;
};

// Each completes commands, flags, the values of enumerations, and file names where a value is a file.
Scripts bash_completions(const Programs& programs);  // needs nothing but bash
Scripts zsh_completions(const Programs& programs);
Scripts fish_completions(const Programs& programs);

}  // namespace terrace::docgen
