// Memory to measure with: anonymous, in pages of a size that the measurement chooses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"

namespace terrace::app {

class Pages {
 public:
  // `bytes` that begin at a 2M boundary, asked for in 2M pages or refused them; not touched yet.
  // kOutOfMemory: the system gives no address space; the sentence does not say what for.
  static Result<Pages> map(std::size_t bytes, bool huge);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&&) = delete;
  ~Pages();

  std::byte* data() const;
  // How much of it the system gave in 2M pages, once it was written to.
  std::uint64_t huge_bytes() const;

 private:
  Pages(std::byte* mapping, std::size_t bytes) : mapping_(mapping), bytes_(bytes) {}

  std::byte* mapping_;
  std::size_t bytes_;
  bool advised_ = false;  // the system took the advice; only /proc tells whether it also follows it
};

}  // namespace terrace::app
