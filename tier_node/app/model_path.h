// Which files a node reads as models.
#pragma once

#include <filesystem>

#include "common/base/result.h"

namespace terrace::node {

// The file of --model. With a --model-dir a relative name is looked for in it, and the file, and of a split set every
// shard, must lie below it once links are followed. kRefused: one lies elsewhere. kNotFound: file or directory is not
// there.
Result<std::filesystem::path> model_path(const std::filesystem::path& model, const std::filesystem::path& directory);

}  // namespace terrace::node
