// The secret that machines of one set-up share: 32 random bytes, kept in a file as one line of 64 hexadecimal digits.
// A machine that has it is the certificate authority of the set-up (certificate_authority.h).
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "common/base/result.h"

namespace terrace::security {

// Move-only; overwritten in memory when it ends.
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  // kRefused: others may read the file. kInvalidArgument: not one line of 64 hexadecimal digits; names file and line,
  // and never shows what stands there. Else as read_private_file().
  static Result<Secret> read(const std::filesystem::path& file);
  // A new one. kIo: the system gives no randomness.
  static Result<Secret> make();

  explicit Secret(const std::array<std::byte, kBytes>& bytes) : bytes_(bytes) {}
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { other.wipe(); }
  Secret& operator=(Secret&&) = delete;
  ~Secret() { wipe(); }

  std::span<const std::byte, kBytes> bytes() const { return bytes_; }
  // As its file holds it, without the end of the line.
  std::string line() const;

 private:
  void wipe();

  std::array<std::byte, kBytes> bytes_;
};

}  // namespace terrace::security
