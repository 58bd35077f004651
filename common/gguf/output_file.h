// A file under construction: buffered writes, every error with the system's reason, in place only when complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "common/base/result.h"

namespace terrace::gguf {

// Move-only. Writes "<path>.partial.XXXXXX"; commit() renames it to path, the destructor removes what was not
// committed. One thread at a time.
class OutputFile {
 public:
  // kInvalidArgument: something other than a file has that name (a rename would replace even a device). kIo.
  static Result<OutputFile> create(const std::filesystem::path& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);  // kIo; the text says how many bytes went before
  Status commit();                                 // kIo
  std::uint64_t offset() const { return flushed_ + buffer_.size(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  OutputFile(std::filesystem::path path, std::filesystem::path partial, int fd);
  Status write_through(std::span<const std::byte> bytes);
  Status flush();
  Error system_error(const char* doing) const;

  std::filesystem::path path_, partial_;
  int fd_ = -1;
  std::string buffer_;
  std::uint64_t flushed_ = 0;
};

}  // namespace terrace::gguf
