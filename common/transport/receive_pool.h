// Memory for received frames: one buffer a frame, given out until the frame is released, then kept for the next one.
// Shared by the transports.
//
// Sizes    Powers of two from 4 KB, so that after warm-up every frame finds a buffer whatever its exact length. What
//          lies beyond the frame is address space: its pages are not touched.
// Spares   A buffer may be filled before it is known what comes: take_spare(), and lend() once a frame lies in it.
// Bounds   Frames given out: at most `window` bytes. Buffers kept, free and given out together: at most twice that, and
//          4 KB, or the size of a spare, for each frame given out: how many of these there are is bounded by credits.
// Threads  One at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace terrace::transport {

class ReceivePool {
 public:
  static constexpr std::size_t kBufferAlignment = 64;

  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{kBufferAlignment}); }
  };
  using Buffer = std::unique_ptr<std::byte, Free>;

  explicit ReceivePool(std::uint64_t window) : window_(window) {}

  // Whether a frame of `bytes` fits beside those given out.
  bool has_room(std::uint64_t bytes) const { return bytes <= window_ - given_out_; }
  // Memory for a frame of `bytes` >= 1, 64-byte aligned. has_room() was asked.
  std::span<std::byte> acquire(std::uint64_t bytes);
  // A buffer of `capacity` bytes, 64-byte aligned, which counts as no frame's.
  Buffer take_spare(std::uint64_t capacity);
  // A frame of `bytes` lies at the start of a spare of `capacity`: it is given out as if by acquire().
  std::span<std::byte> lend(Buffer spare, std::uint64_t capacity, std::uint64_t bytes);
  // Takes back what acquire() or lend() gave, by its first byte and length. Anything else is a bug of the caller.
  void release(std::span<const std::byte> frame);
  // Bytes of all buffers, free and given out.
  std::uint64_t kept_bytes() const { return kept_; }

 private:
  struct Given {
    Buffer buffer;
    std::uint64_t bytes;
    unsigned bits;  // of the buffer's size
  };
  Buffer take(unsigned bits);
  void make_room(std::uint64_t capacity);

  std::uint64_t window_;
  std::uint64_t given_out_ = 0;  // bytes of frames
  std::uint64_t kept_ = 0;       // bytes of all buffers
  std::vector<Given> given_;
  std::array<std::vector<Buffer>, 64> free_;  // by log2 of the buffer's size
};

}  // namespace terrace::transport
