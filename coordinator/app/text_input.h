// Text that a user gives: an argument, a file, or standard input.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/result.h"

namespace terrace::app {

// The file's bytes as they are. kNotFound, kInvalidArgument (a directory), kIo: the sentence names the file.
Result<std::string> read_file(const std::filesystem::path& file);
// Standard input to its end, bytes as they are.
Result<std::string> read_stdin();

}  // namespace terrace::app
