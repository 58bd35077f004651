#include "coordinator/app/text_input.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

namespace terrace::app {
namespace {

Result<std::string> read_all(std::FILE* in, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  std::size_t n = 0;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), in)) > 0) text.append(buffer.data(), n);
  if (std::ferror(in) != 0)
    return Error(ErrorCode::kIo, fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
  return text;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: is a directory; give a file", file.string()));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"), &std::fclose);
  if (in == nullptr)
    return Error(ErrorCode::kNotFound, fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  return read_all(in.get(), file.string());
}

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kShortText = 60;
  const bool is_short = value.is_string() && value.get_ref<const std::string&>().size() <= kShortText;
  if (value.is_structured() || (value.is_string() && !is_short)) return fmt::format("of type {}", value.type_name());
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::string> read_stdin() { return read_all(stdin, "standard input"); }

}  // namespace terrace::app
