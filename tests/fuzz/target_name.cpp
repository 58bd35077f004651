// Compiled once for each target, with its name.
#include "tests/fuzz/fuzz_target.h"

namespace terrace::fuzz {

std::string target_name() { return TERRACE_FUZZ_TARGET; }

}  // namespace terrace::fuzz
