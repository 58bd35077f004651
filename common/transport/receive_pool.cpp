#include "common/transport/receive_pool.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"

namespace terrace::transport {
namespace {

constexpr std::uint64_t kSmallestBuffer = 4096;

unsigned size_class(std::uint64_t bytes) {
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(std::max(bytes, kSmallestBuffer))));
}

}  // namespace

std::span<std::byte> ReceivePool::acquire(std::uint64_t bytes) {
  TERRACE_CHECK(bytes > 0 && has_room(bytes), "a frame beyond the receive window");
  const unsigned bits = size_class(bytes);
  auto& free = free_[bits];
  if (free.empty()) {
    const std::uint64_t capacity = std::uint64_t{1} << bits;
    make_room(capacity);
    free.emplace_back(static_cast<std::byte*>(::operator new (capacity, std::align_val_t{kBufferAlignment})));
    kept_ += capacity;
  }
  given_.push_back({std::move(free.back()), bytes});
  free.pop_back();
  given_out_ += bytes;
  return {given_.back().buffer.get(), static_cast<std::size_t>(bytes)};
}

void ReceivePool::release(std::span<const std::byte> frame) {
  const auto it = std::find_if(given_.begin(), given_.end(),
                               [&](const Given& given) { return given.buffer.get() == frame.data(); });
  TERRACE_CHECK(it != given_.end() && it->bytes == frame.size(), "release() of what was not received here");
  given_out_ -= it->bytes;
  free_[size_class(it->bytes)].push_back(std::move(it->buffer));
  *it = std::move(given_.back());
  given_.pop_back();
}

// Gives free buffers back to the system, largest first, until a new one of `capacity` keeps to the bound.
void ReceivePool::make_room(std::uint64_t capacity) {
  for (std::size_t bits = free_.size(); bits-- > 0;) {
    while (!free_[bits].empty() && kept_ + capacity > 2 * window_) {
      free_[bits].pop_back();
      kept_ -= std::uint64_t{1} << bits;
    }
  }
}

}  // namespace terrace::transport
