#include "common/transport/recording/replay_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "common/wire/messages.h"

namespace terrace::transport {
namespace {

constexpr std::size_t kMostDifferences = 20;

bool has_frame(const RecordedEntry& entry) {
  return entry.event == RecordedEvent::kSent || entry.event == RecordedEvent::kReceived;
}

// Without what is another value in each run: the time that a reply took.
std::vector<std::byte> comparable(const wire::Section& section) {
  std::vector<std::byte> data(section.data.begin(), section.data.end());
  if (section.tag == wire::SectionTag::kReply && data.size() == sizeof(wire::ReplyInfo))
    std::memset(data.data() + offsetof(wire::ReplyInfo, compute_us), 0, sizeof(std::uint32_t));
  return data;
}

// The first thing in which the frames differ.
std::optional<std::string> difference(const wire::Frame& live, const wire::Frame& recorded) {
  const wire::FrameHeader& a = live.header;
  const wire::FrameHeader& b = recorded.header;
  if (a.type != b.type) return fmt::format("it is {}", wire::name(b.type));
  if (a.lane != b.lane) return fmt::format("its lane is {}", wire::name(b.lane));
  if (a.layer != b.layer) return fmt::format("its layer is {}", b.layer);
  if (a.epoch != b.epoch) return fmt::format("its epoch is {}", b.epoch);
  if (live.all().size() != recorded.all().size())
    return fmt::format("it has {} sections, not {}", recorded.all().size(), live.all().size());
  for (const wire::Section& section : recorded.all()) {
    const wire::Section* same = live.find(section.tag, section.detail);
    if (same == nullptr) return fmt::format("it has a section {}", wire::name(section.tag));
    const auto expected = comparable(section), found = comparable(*same);
    if (expected.size() != found.size())
      return fmt::format("its section {} has {} bytes, not {}", wire::name(section.tag), expected.size(), found.size());
    const auto at = std::ranges::mismatch(found, expected).in1 - found.begin();
    if (at != static_cast<std::ptrdiff_t>(found.size()))
      return fmt::format("its section {} differs at byte {}", wire::name(section.tag), at);
  }
  return std::nullopt;
}

}  // namespace

bool is_substance(wire::FrameType type) {
  return type != wire::FrameType::kPing && type != wire::FrameType::kPong && type != wire::FrameType::kCredit &&
         type != wire::FrameType::kClose;
}

Result<std::shared_ptr<ReplayLog>> ReplayLog::create(Recording recording, const ReplayIdentity& identity) {
  std::shared_ptr<ReplayLog> log(new ReplayLog(std::move(recording), identity));
  const auto entries = log->recording_.entries();
  log->frames_.resize(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!has_frame(entries[i])) continue;
    auto frame = wire::decode_frame(entries[i].frame);
    if (!frame.ok()) return frame.error().in(fmt::format("recording: entry {} cannot be played", i));
    log->frames_[i] = *frame;
  }
  return log;
}

ConnectionScript ReplayLog::script(std::uint32_t connection, PlayedEnd played) const {
  const RecordedEvent play = played == PlayedEnd::kRecorder ? RecordedEvent::kSent : RecordedEvent::kReceived;
  ConnectionScript script;
  const auto entries = recording_.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].connection != connection || !has_frame(entries[i])) continue;
    const wire::FrameType type = frames_[i].header.type;
    if (entries[i].event == play && (is_substance(type) || type == wire::FrameType::kCredit))
      script.played.push_back({frames_[i], script.live.size()});
    else if (entries[i].event != play && is_substance(type))
      script.live.push_back(frames_[i]);
  }
  return script;
}

void ReplayLog::compare(std::uint32_t connection, const wire::Frame& frame, const wire::Frame* recorded) {
  const std::lock_guard lock(mutex_);
  ++compared_;
  if (differences_.size() == kMostDifferences) return;
  const std::string which = fmt::format("connection {}: {} frame {} of layer {}", connection,
                                        wire::name(frame.header.type), frame.header.sequence, frame.header.layer);
  if (recorded == nullptr) {
    differences_.push_back(which + " is not in the recording");
  } else if (const auto differs = difference(frame, *recorded)) {
    differences_.push_back(which + ": in the recording " + *differs);
  }
}

void ReplayLog::connection_done() {
  const std::lock_guard lock(mutex_);
  ++n_done_;
}

bool ReplayLog::finished() const {
  const std::lock_guard lock(mutex_);
  return n_done_ == recording_.n_connections();
}

std::vector<std::string> ReplayLog::differences() const {
  const std::lock_guard lock(mutex_);
  return differences_;
}

std::size_t ReplayLog::compared() const {
  const std::lock_guard lock(mutex_);
  return compared_;
}

}  // namespace terrace::transport
