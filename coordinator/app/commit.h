#pragma once

namespace terrace::app {

// The commit this program was built from, "1a2b3c4d5e6f", with "-dirty" where the tree had changes; "unknown" when it
// was built outside a git checkout. From cmake/WriteCommit.cmake.
const char* commit();

}  // namespace terrace::app
