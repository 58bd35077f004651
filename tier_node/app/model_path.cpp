#include "tier_node/app/model_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>

#include "common/gguf/split.h"

namespace terrace::node {
namespace {

Error not_there(const std::filesystem::path& what, const std::error_code& error) {
  const bool missing = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  return Error(missing ? ErrorCode::kNotFound : ErrorCode::kIo, fmt::format("{}: {}", what.string(), error.message()));
}

Status require_below(const std::filesystem::path& file, const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(file, error);
  if (error) return not_there(file, error);
  const auto parted = std::mismatch(directory.begin(), directory.end(), real.begin(), real.end());
  if (parted.first == directory.end()) return {};
  return Error(ErrorCode::kRefused, fmt::format("{}: lies at {}, which is not below --model-dir {}; move it there or "
                                                "leave --model-dir out",
                                                file.string(), real.string(), directory.string()));
}

}  // namespace

Result<std::filesystem::path> model_path(const std::filesystem::path& model, const std::filesystem::path& directory) {
  if (directory.empty()) return model;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(directory, error);
  if (error) return not_there(directory, error);
  const std::filesystem::path path = real / model;  // an absolute one stays what it is
  TERRACE_RETURN_IF_ERROR(require_below(path, real));
  if (auto name = gguf::parse_split_name(path))
    for (name->number = 1; name->number <= name->count; ++name->number) {
      const std::filesystem::path shard = path.parent_path() / name->file_name();
      // One that is missing is told by the reader, which says what it is missing from.
      if (std::filesystem::exists(shard, error)) TERRACE_RETURN_IF_ERROR(require_below(shard, real));
    }
  return path;
}

}  // namespace terrace::node
