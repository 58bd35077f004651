// Bytes that begin at a multiple of 64 (a cache line, an AVX-512 register). Moved, never copied.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "common/base/result.h"

namespace terrace {

class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  AlignedBuffer() = default;  // no bytes
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  // `bytes` bytes whose content is not defined. kOutOfMemory: the system has no room for them.
  static Result<AlignedBuffer> allocate(std::size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  // Sets every byte to zero, so that the system has really given each page.
  void touch();

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace terrace
