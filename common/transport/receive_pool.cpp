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

ReceivePool::Buffer ReceivePool::take(unsigned bits) {
  auto& free = free_[bits];
  if (free.empty()) {
    const std::uint64_t capacity = std::uint64_t{1} << bits;
    make_room(capacity);
    free.emplace_back(static_cast<std::byte*>(::operator new (capacity, std::align_val_t{kBufferAlignment})));
    kept_ += capacity;
  }
  Buffer buffer = std::move(free.back());
  free.pop_back();
  return buffer;
}

std::span<std::byte> ReceivePool::acquire(std::uint64_t bytes) { return lend(take(size_class(bytes)), bytes, bytes); }

ReceivePool::Buffer ReceivePool::take_spare(std::uint64_t capacity) { return take(size_class(capacity)); }

std::span<std::byte> ReceivePool::lend(Buffer spare, std::uint64_t capacity, std::uint64_t bytes) {
  TERRACE_CHECK(bytes > 0 && bytes <= capacity && has_room(bytes), "a frame beyond the receive window");
  given_.push_back({std::move(spare), bytes, size_class(capacity)});
  given_out_ += bytes;
  return {given_.back().buffer.get(), static_cast<std::size_t>(bytes)};
}

void ReceivePool::release(std::span<const std::byte> frame) {
  const auto it = std::find_if(given_.begin(), given_.end(),
                               [&](const Given& given) { return given.buffer.get() == frame.data(); });
  TERRACE_CHECK(it != given_.end() && it->bytes == frame.size(), "release() of what was not received here");
  given_out_ -= it->bytes;
  free_[it->bits].push_back(std::move(it->buffer));
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
