// Cuts a stream of bytes into frames. Only for common/transport/tcp.
//
// Bytes are read to where space() says: the rest of the frame in progress first, so that a large payload goes straight
// into its final buffer, then a read-ahead, which holds headers and small frames: several of them cost one read. A
// frame that lies at the start of the read-ahead, as one does that comes alone, is given out where it lies, and another
// buffer takes the read-ahead's place: a decode batch or reply is not moved. Of a frame longer than the read-ahead what
// came into it is (bytes_copied()).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/transport/receive_pool.h"

namespace terrace::transport {

class FrameReader {
 public:
  explicit FrameReader(const Options& options);

  // The next whole frame; none: window_full(), or read more. kCorrupt: the peer does not send frames.
  Result<std::optional<std::span<const std::byte>>> next_frame();
  // The next frame's header is here, but the frame does not fit into the window: do not read until release().
  bool window_full() const { return window_full_; }
  // Where the next bytes of the stream go. Asked for after next_frame() gave none and the window is not full.
  std::array<std::span<std::byte>, 2> space();
  // `bytes` of space() were filled.
  void filled(std::size_t bytes);
  void release(std::span<const std::byte> frame);
  // For frames whose header next_frame() has not looked at yet. At most the window counts.
  void set_largest_frame(std::uint64_t bytes) { largest_frame_ = std::min(bytes, window_); }
  // Bytes of a frame whose rest is missing.
  std::uint64_t bytes_of_unfinished() const { return filled_ + ahead_bytes(); }
  // Of the whole frame; 0 until next_frame() has seen its header.
  std::uint64_t length_of_unfinished() const { return frame_.empty() ? length_ : frame_.size(); }
  // Moved from the read-ahead to elsewhere, since the start.
  std::uint64_t bytes_copied() const { return copied_; }

 private:
  // Enough for most decode batches and replies; a larger frame copies at most so much.
  static constexpr std::size_t kReadAhead = 16384;
  // A shorter frame is copied: that costs less than another buffer.
  static constexpr std::size_t kLeastLent = 1024;

  std::size_t ahead_bytes() const { return ahead_end_ - ahead_begin_; }
  // The next frame may be given out where it lies, now or when all of it has come.
  bool can_lend() const;
  std::span<std::byte> lend_ahead();
  void start_frame();

  std::uint64_t largest_frame_;
  std::uint64_t window_;
  ReceivePool pool_;
  ReceivePool::Buffer ahead_;  // [kReadAhead], bytes [ahead_begin_, ahead_end_) are not used yet
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
  std::uint64_t length_ = 0;  // of the frame whose header is at ahead_begin_; 0: not looked at yet
  std::uint64_t copied_ = 0;
  std::span<std::byte> frame_;  // in progress, empty if none
  std::size_t filled_ = 0;      // of frame_
  bool window_full_ = false;
};

}  // namespace terrace::transport
