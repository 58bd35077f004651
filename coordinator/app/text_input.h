// Text that a user gives: an argument, a file, or standard input.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/base/result.h"

namespace terrace::app {

// The file's bytes as they are. kNotFound, kInvalidArgument (a directory), kIo: the sentence names the file.
Result<std::string> read_file(const std::filesystem::path& file);
// Standard input to its end, bytes as they are.
Result<std::string> read_stdin();

// A JSON value as an error quotes it: numbers and short texts as they are, of the rest only what they are. (Writing out
// lists that are nested a million deep would take a stack as deep.)
std::string shown(const nlohmann::json& value);

}  // namespace terrace::app
