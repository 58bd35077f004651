// A key of 32 bytes that leaves no copy behind in freed memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "common/base/result.h"

namespace terrace::security {

// Copied where several need it; each copy is overwritten when it ends. Compared by nobody but constant_time.h, and
// never printed.
class Key {
 public:
  static constexpr std::size_t kBytes = 32;

  Key() = default;  // zeros
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key() { wipe(); }

  // kIo: the system gives no randomness.
  static Result<Key> make();
  // `bytes` has kBytes.
  static Key from(std::span<const std::byte> bytes);

  std::span<const std::byte, kBytes> bytes() const { return bytes_; }
  std::span<std::byte, kBytes> writable() { return bytes_; }

 private:
  void wipe();

  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace terrace::security
