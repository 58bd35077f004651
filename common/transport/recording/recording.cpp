#include "common/transport/recording/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <system_error>

#include "common/transport/recording/format.h"
#include "common/wire/frame.h"

namespace terrace::transport {
namespace {

using recording::EntryHeader;
using recording::FileHeader;
using recording::padded;

static_assert(std::endian::native == std::endian::little, "recordings are read as they lie in memory");

template <class T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...));
}

Status check_header(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(FileHeader))
    return corrupt("recording: {} bytes, its header has {}", bytes.size(), sizeof(FileHeader));
  const auto header = load<FileHeader>(bytes, 0);
  if (header.magic != recording::kMagic) return corrupt("recording: it does not begin with TRRCFRMS");
  if (header.version != recording::kVersion)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("recording: version {}, this build reads {}", header.version, recording::kVersion));
  if (header.reserved != 0) return corrupt("recording: reserved bytes at offset 12 are not zero");
  return {};
}

// The entry at `at`, all of it inside `bytes`. `n_connected` connections are known before it.
Result<RecordedEntry> read_entry(std::span<const std::byte> bytes, std::size_t at, std::uint32_t n_connected) {
  const std::uint64_t left = bytes.size() - at;
  if (left < sizeof(EntryHeader))
    return corrupt("{} bytes are left, an entry's header has {}: cut short", left, sizeof(EntryHeader));
  const auto header = load<EntryHeader>(bytes, at);
  if (header.event > static_cast<std::uint8_t>(RecordedEvent::kClosed))
    return corrupt("event {} is not known", header.event);
  if (header.reserved != std::array<std::uint8_t, 3>{} || header.reserved_too != 0 || header.reserved_last != 0)
    return corrupt("reserved bytes are not zero");
  RecordedEntry entry;
  entry.time = std::chrono::nanoseconds(header.time_ns);
  entry.connection = header.connection;
  entry.event = static_cast<RecordedEvent>(header.event);
  const bool is_new = entry.event == RecordedEvent::kConnected;
  if (is_new ? entry.connection != n_connected : entry.connection >= n_connected)
    return corrupt("connection {}, {} are known so far", entry.connection, n_connected);
  const bool has_frame = entry.event == RecordedEvent::kSent || entry.event == RecordedEvent::kReceived;
  if (has_frame != (header.bytes != 0) || header.bytes > wire::kLargestFrame)
    return corrupt("a frame of {} bytes with event {}", header.bytes, header.event);
  if (padded(header.bytes) > left - sizeof(EntryHeader))
    return corrupt("a frame of {} bytes, {} are left: cut short", header.bytes, left - sizeof(EntryHeader));
  const auto frame = bytes.subspan(at + sizeof(EntryHeader), static_cast<std::size_t>(padded(header.bytes)));
  entry.frame = frame.first(header.bytes);
  const auto padding = frame.subspan(header.bytes);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; }))
    return corrupt("padding is not zero");
  return entry;
}

}  // namespace

Result<Recording> Recording::parse(AlignedBuffer bytes) {
  Recording recording;
  recording.bytes_ = std::move(bytes);
  const std::span<const std::byte> all = std::as_const(recording.bytes_).bytes();
  TERRACE_RETURN_IF_ERROR(check_header(all));
  for (std::size_t at = sizeof(FileHeader); at < all.size();) {
    auto entry = read_entry(all, at, recording.n_connections_);
    if (entry.ok() && !recording.entries_.empty() && entry->time < recording.entries_.back().time)
      entry = corrupt("its time is before that of the entry before");
    if (!entry.ok())
      return entry.error().in(fmt::format("recording: entry {} at offset {}", recording.entries_.size(), at));
    recording.n_connections_ += entry->event == RecordedEvent::kConnected;
    at += sizeof(EntryHeader) + static_cast<std::size_t>(padded(entry->frame.size()));
    recording.entries_.push_back(*entry);
  }
  return recording;
}

Result<Recording> Recording::read(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return Error(ErrorCode::kNotFound, path.string() + ": there is no such file");
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) return Error(ErrorCode::kIo, fmt::format("{}: {}", path.string(), error.message()));
  auto bytes = AlignedBuffer::allocate(static_cast<std::size_t>(size));
  if (!bytes.ok()) return bytes.error().in(path.string());
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes->data()), static_cast<std::streamsize>(size));
  if (!in) return Error(ErrorCode::kIo, path.string() + ": cannot be read to its end");
  auto recording = parse(std::move(bytes).value());
  return recording.ok() ? std::move(recording) : Result<Recording>(recording.error().in(path.string()));
}

}  // namespace terrace::transport
