#pragma once

namespace terrace {

// The version of this build, "0.1.0": that of the CMake project.
const char* version();

}  // namespace terrace
