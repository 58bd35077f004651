#include "common/base/aligned_buffer.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "common/base/units.h"

namespace terrace {

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  data_ = std::move(other.data_);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const Error refused(ErrorCode::kOutOfMemory, fmt::format("the system gives no {} of memory", format_size(bytes)));
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - kAlignment) return refused;
  // aligned_alloc wants a multiple of the alignment.
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  buffer.data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (buffer.data_ == nullptr) return refused;
  buffer.size_ = bytes;
  return buffer;
}

void AlignedBuffer::touch() {
  if (size_ > 0) std::memset(data_.get(), 0, size_);
}

}  // namespace terrace
