// Frames of connections as a file (docs/wire.md 11): what travelled, which way and when. For looking into a fault, and
// for playing one end of a recorded link again (replay.h).
//
// A recording holds no key, but activations and weights are in it: it is as confidential as the prompts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/base/result.h"

namespace terrace::transport {

enum class RecordedEvent : std::uint8_t {
  kConnected = 0,
  kSent = 1,
  kReceived = 2,
  kClosed = 3
};  // by the recording end

struct RecordedEntry {
  std::chrono::nanoseconds time{0};  // since the recording began
  std::uint32_t connection = 0;      // counted from 0
  RecordedEvent event = RecordedEvent::kConnected;
  std::span<const std::byte>
      frame;  // of kSent and kReceived, as it travelled, whole or not a frame at all; aligned to 16
};

// A recording in memory. Moving it keeps the entries' frames.
class Recording {
 public:
  // kIo, kNotFound, kOutOfMemory; kCorrupt names file, entry and offset. Whatever the file says: nothing is set aside
  // but its own size and its entries.
  static Result<Recording> read(const std::filesystem::path& path);
  // `bytes` is the file's content.
  static Result<Recording> parse(AlignedBuffer bytes);

  std::span<const RecordedEntry> entries() const { return entries_; }
  std::uint32_t n_connections() const { return n_connections_; }

 private:
  AlignedBuffer bytes_;
  std::vector<RecordedEntry> entries_;
  std::uint32_t n_connections_ = 0;
};

}  // namespace terrace::transport
