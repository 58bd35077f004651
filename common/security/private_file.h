// Files that hold a secret or a private key: read only while nobody else may read them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "common/base/result.h"

namespace terrace::security {

// Overwrites the text before its memory is given back.
void wipe(std::string& text);

// The whole file. Refused by name: what is no regular file; what others than its owner may read or write. The group may
// read a file of root's that this process, another user's, was given to read: systemd and Kubernetes hand secrets over
// so. A link is followed. kNotFound, kIo, kRefused, kInvalidArgument (longer than max_bytes); texts begin with the
// file.
Result<std::string> read_private_file(const std::filesystem::path& file, std::size_t max_bytes);
// The whole of a file that holds no secret, with the same limits and errors but those about who may read it.
Result<std::string> read_public_file(const std::filesystem::path& file, std::size_t max_bytes);

}  // namespace terrace::security
