// A whole file as text, every error told: a stream that fails in the middle looks like the end of its file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>

#include "common/base/result.h"

namespace terrace {

// The file's bytes as they are; a pipe is read to its end. The sentences name the file. kNotFound; kInvalidArgument: a
// directory, or more than max_bytes; kIo, with the system's reason.
Result<std::string> read_text_file(const std::filesystem::path& file,
                                   std::size_t max_bytes = std::numeric_limits<std::size_t>::max());
// The same of an open descriptor, from where it stands; `name` is what the sentences call it.
Result<std::string> read_text(int descriptor, const std::string& name,
                              std::size_t max_bytes = std::numeric_limits<std::size_t>::max());

}  // namespace terrace
