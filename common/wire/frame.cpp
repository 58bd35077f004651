#include "common/wire/frame.h"

#include <algorithm>

#include "common/wire/bytes.h"
#include "common/wire/checksum.h"

namespace terrace::wire {
namespace {

constexpr std::uint32_t bit(SectionTag tag) { return std::uint32_t{1} << static_cast<unsigned>(tag); }

// The sections that a frame of this type may hold; 0 for a type that has none, and for a number that is no type.
constexpr std::uint32_t allowed_sections(FrameType type) {
  using enum SectionTag;
  switch (type) {
    case FrameType::kHello:
      return bit(kHello);
    case FrameType::kWelcome:
      return bit(kWelcome);
    case FrameType::kBatch:
      return bit(kBatch) | bit(kRows) | bit(kPairs) | bit(kRanges);
    case FrameType::kReply:
      return bit(kReply) | bit(kSums) | bit(kSlots) | bit(kFailedRows);
    case FrameType::kBusy:
      return bit(kBusy);
    case FrameType::kError:
      return bit(kError);
    case FrameType::kSlab:
      return bit(kSlab) | bit(kSlabBytes);
    case FrameType::kChallenge:
      return bit(kChallenge);
    case FrameType::kProof:
      return bit(kProof);
    case FrameType::kAccept:
      return bit(kAccept);
    case FrameType::kEndpoint:
      return bit(kEndpoint);
    case FrameType::kPing:
    case FrameType::kPong:
    case FrameType::kCredit:
    case FrameType::kCancel:
    case FrameType::kClose:
      return 0;
  }
  return 0;
}

bool is_frame_type(std::uint8_t number) { return number >= 1 && number <= static_cast<unsigned>(FrameType::kEndpoint); }
bool is_section_tag(std::uint16_t number) {
  return number >= 1 && number <= static_cast<unsigned>(SectionTag::kEndpoint);
}

Result<FrameHeader> read_header(const std::byte* at) {
  const auto type = load<std::uint8_t>(at + offset::kType);
  const auto lane = load<std::uint8_t>(at + offset::kLane);
  if (!is_frame_type(type)) return corrupt("frame header: type {} is not known", type);
  if (lane >= kLanes) return corrupt("frame header: lane {} is not known", lane);
  FrameHeader header;
  header.type = static_cast<FrameType>(type);
  header.lane = static_cast<Lane>(lane);
  header.flags = load<std::uint16_t>(at + offset::kFlags);
  header.section_count = load<std::uint16_t>(at + offset::kSectionCount);
  header.layer = load<std::uint32_t>(at + offset::kLayer);
  header.session = load<std::uint64_t>(at + offset::kSession);
  header.sequence = load<std::uint64_t>(at + offset::kSequence);
  header.epoch = load<std::uint64_t>(at + offset::kEpoch);
  header.body_length = load<std::uint32_t>(at + offset::kBodyLength);
  header.credit_frames = load<std::uint32_t>(at + offset::kCreditFrames);
  header.credit_bytes = load<std::uint64_t>(at + offset::kCreditBytes);
  if ((header.flags & ~kKnownFlags) != 0)
    return corrupt("frame header: flags {:#06x}, version {} defines {:#06x}", header.flags, kVersion, kKnownFlags);
  if (header.section_count > kMaxSections)
    return corrupt("frame header: {} sections, at most {}", header.section_count, kMaxSections);
  return header;
}

Status check_checksum(std::span<const std::byte> bytes) {
  const auto stated = load<std::uint64_t>(bytes.data() + offset::kChecksum);
  if ((flags(bytes) & kFlagNoChecksum) != 0) {
    if (stated == 0) return {};
    return corrupt("frame: checksum is {:#018x} where its flags say that there is none", stated);
  }
  Checksum checksum;
  checksum.add_header(bytes.data());
  checksum.add(bytes.subspan(kHeaderBytes));
  const std::uint64_t found = checksum.value();
  if (found == stated) return {};
  return corrupt("frame: checksum is {:#018x}, its bytes give {:#018x}", stated, found);
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// The section at `at`, which is 16-byte aligned and not beyond the end. Its length with header and padding is
// section_bytes(data.size()).
Result<Section> read_section(std::span<const std::byte> bytes, std::size_t at) {
  if (bytes.size() - at < kSectionHeaderBytes)
    return corrupt("section at offset {}: {} bytes are left, its header has {}", at, bytes.size() - at,
                   kSectionHeaderBytes);
  const auto tag = load<std::uint16_t>(bytes.data() + at);
  const auto detail = load<std::uint16_t>(bytes.data() + at + 2);
  const auto reserved = load<std::uint32_t>(bytes.data() + at + 4);
  const auto length = load<std::uint64_t>(bytes.data() + at + 8);
  if (!is_section_tag(tag)) return corrupt("section at offset {}: tag {} is not known", at, tag);
  const auto known = static_cast<SectionTag>(tag);
  if (detail > (known == SectionTag::kRows ? 1 : 0))
    return corrupt("section {} at offset {}: detail {} is not known", name(known), at, detail);
  if (reserved != 0) return corrupt("section {} at offset {}: reserved bytes are not zero", name(known), at);
  const std::uint64_t left = bytes.size() - at - kSectionHeaderBytes;
  // `left` is a multiple of 16, so what fits also fits with its padding.
  if (length > left) return corrupt("section {} at offset {}: {} bytes, {} are left", name(known), at, length, left);
  const auto data = bytes.subspan(at + kSectionHeaderBytes, static_cast<std::size_t>(padded(length)));
  if (!all_zero(data.subspan(static_cast<std::size_t>(length))))
    return corrupt("section {} at offset {}: padding is not zero", name(known), at);
  return Section{known, detail, data.first(static_cast<std::size_t>(length))};
}

Status read_sections(std::span<const std::byte> bytes, Frame& frame) {
  const std::uint16_t count = frame.header.section_count;
  std::size_t at = kHeaderBytes;
  frame.header.section_count = 0;  // find() sees what has been read
  for (std::uint16_t i = 0; i < count; ++i) {
    TERRACE_ASSIGN_OR_RETURN(const Section section, read_section(bytes, at));
    if ((allowed_sections(frame.header.type) & bit(section.tag)) == 0)
      return corrupt("section {} at offset {} does not belong in a {} frame", name(section.tag), at,
                     name(frame.header.type));
    if (frame.find(section.tag, section.detail) != nullptr)
      return corrupt("section {} (detail {}) at offset {} stands twice", name(section.tag), section.detail, at);
    frame.sections[i] = section;
    frame.header.section_count = static_cast<std::uint16_t>(i + 1);
    at += static_cast<std::size_t>(section_bytes(section.data.size()));
  }
  if (at != bytes.size()) return corrupt("frame: {} bytes after its last section", bytes.size() - at);
  return {};
}

}  // namespace

const char* name(Lane lane) {
  switch (lane) {
    case Lane::kLatency:
      return "latency";
    case Lane::kBulk:
      return "bulk";
    case Lane::kWeights:
      return "weights";
  }
  return "unknown";
}

const char* name(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return "hello";
    case FrameType::kWelcome:
      return "welcome";
    case FrameType::kBatch:
      return "batch";
    case FrameType::kReply:
      return "reply";
    case FrameType::kBusy:
      return "busy";
    case FrameType::kPing:
      return "ping";
    case FrameType::kPong:
      return "pong";
    case FrameType::kCredit:
      return "credit";
    case FrameType::kCancel:
      return "cancel";
    case FrameType::kError:
      return "error";
    case FrameType::kClose:
      return "close";
    case FrameType::kSlab:
      return "slab";
    case FrameType::kChallenge:
      return "challenge";
    case FrameType::kProof:
      return "proof";
    case FrameType::kAccept:
      return "accept";
    case FrameType::kEndpoint:
      return "endpoint";
  }
  return "unknown";
}

const char* name(SectionTag tag) {
  switch (tag) {
    case SectionTag::kHello:
      return "hello";
    case SectionTag::kWelcome:
      return "welcome";
    case SectionTag::kBatch:
      return "batch";
    case SectionTag::kRows:
      return "rows";
    case SectionTag::kPairs:
      return "pairs";
    case SectionTag::kRanges:
      return "ranges";
    case SectionTag::kReply:
      return "reply";
    case SectionTag::kSums:
      return "sums";
    case SectionTag::kSlots:
      return "slots";
    case SectionTag::kFailedRows:
      return "failed_rows";
    case SectionTag::kBusy:
      return "busy";
    case SectionTag::kError:
      return "error";
    case SectionTag::kSlab:
      return "slab";
    case SectionTag::kSlabBytes:
      return "slab_bytes";
    case SectionTag::kChallenge:
      return "challenge";
    case SectionTag::kProof:
      return "proof";
    case SectionTag::kAccept:
      return "accept";
    case SectionTag::kEndpoint:
      return "endpoint";
  }
  return "unknown";
}

const Section* Frame::find(SectionTag tag, std::uint16_t detail) const {
  for (const Section& section : all())
    if (section.tag == tag && section.detail == detail) return &section;
  return nullptr;
}

Result<std::uint64_t> frame_length(std::span<const std::byte> header, std::uint64_t largest_frame) {
  if (header.size() < kHeaderBytes) return corrupt("frame header: {} bytes, it has {}", header.size(), kHeaderBytes);
  const auto magic = load<std::uint32_t>(header.data() + offset::kMagic);
  const auto version = load<std::uint16_t>(header.data() + offset::kVersion);
  const auto body = load<std::uint32_t>(header.data() + offset::kBodyLength);
  if (magic != kMagic) return corrupt("frame header: magic {:#010x}, expected {:#010x} (\"TRRC\")", magic, kMagic);
  if (version != kVersion) return corrupt("frame header: version {}, this build reads {}", version, kVersion);
  if (body % kAlignment != 0)
    return corrupt("frame header: body of {} bytes is not a multiple of {}", body, kAlignment);
  const std::uint64_t total = kHeaderBytes + std::uint64_t{body};
  const std::uint64_t largest = std::min(largest_frame, kLargestFrame);
  if (total > largest) return corrupt("frame header: frame of {} bytes, at most {} here", total, largest);
  return total;
}

Status check_frame_length(std::span<const std::byte> header, std::uint64_t bytes, std::uint64_t largest_frame) {
  const std::size_t present = std::min<std::size_t>({header.size(), kHeaderBytes, bytes});
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t stated, frame_length(header.first(present), largest_frame));
  if (stated == bytes) return {};
  return corrupt("frame of {} bytes, its header says {}", bytes, stated);
}

std::uint16_t flags(std::span<const std::byte> header) { return load<std::uint16_t>(header.data() + offset::kFlags); }

std::uint32_t body_length(std::span<const std::byte> header) {
  return load<std::uint32_t>(header.data() + offset::kBodyLength);
}

void set_body_length(std::span<std::byte> header, std::uint32_t bytes) {
  store(header.data() + offset::kBodyLength, bytes);
}

Result<Frame> decode_frame(std::span<const std::byte> bytes) {
  TERRACE_CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment == 0, "a frame lies 16-byte aligned");
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t total, frame_length(bytes, kLargestFrame));
  if (total != bytes.size()) return corrupt("frame: {} bytes, its header says {}", bytes.size(), total);
  TERRACE_RETURN_IF_ERROR(check_checksum(bytes));
  TERRACE_ASSIGN_OR_RETURN(const FrameHeader header, read_header(bytes.data()));
  Frame frame;
  frame.header = header;
  TERRACE_RETURN_IF_ERROR(read_sections(bytes, frame));
  return frame;
}

}  // namespace terrace::wire
