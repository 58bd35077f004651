#include "common/wire/bytes.h"
#include "common/wire/checksum.h"
#include "common/wire/frame.h"

namespace terrace::wire {
namespace {

constexpr std::array<std::byte, kAlignment> kZeros{};

}  // namespace

void FrameBuilder::begin(const FrameHeader& header) {
  header_ = header;
  n_sections_ = 0;
  n_parts_ = 0;
  total_ = kHeaderBytes;
  add_part(header_bytes_);
}

void FrameBuilder::add_part(std::span<const std::byte> part) {
  if (!part.empty()) parts_[n_parts_++] = part;
}

void FrameBuilder::add(SectionTag tag, std::uint16_t detail, std::span<const std::byte> data,
                       std::span<const std::byte> more) {
  TERRACE_CHECK(n_parts_ > 0, "add() before begin()");
  TERRACE_CHECK(n_sections_ < kMaxSections, "too many sections for one frame");
  auto& header = pieces_[n_sections_++].header;
  const std::uint64_t length = std::uint64_t{data.size()} + more.size();
  store(header.data(), tag);
  store(header.data() + 2, detail);
  store(header.data() + 4, std::uint32_t{0});
  store(header.data() + 8, length);
  add_part(header);
  add_part(data);
  add_part(more);
  add_part(std::span(kZeros).first(static_cast<std::size_t>(padded(length) - length)));
  total_ += section_bytes(length);
}

void FrameBuilder::add_copy(SectionTag tag, std::uint16_t detail, std::span<const std::byte> head,
                            std::span<const std::byte> more) {
  TERRACE_CHECK(head.size() <= kMaxCopied, "too long to be copied into the builder");
  TERRACE_CHECK(n_sections_ < kMaxSections, "too many sections for one frame");
  auto& copied = pieces_[n_sections_].copied;
  std::memcpy(copied.data(), head.data(), head.size());
  add(tag, detail, std::span(copied).first(head.size()), more);
}

std::span<const std::span<const std::byte>> FrameBuilder::finish() {
  TERRACE_CHECK(n_parts_ > 0, "finish() before begin()");
  TERRACE_CHECK(total_ <= kLargestFrame, "a frame longer than the wire allows");
  std::byte* at = header_bytes_.data();
  store(at + offset::kMagic, kMagic);
  store(at + offset::kVersion, kVersion);
  store(at + offset::kType, header_.type);
  store(at + offset::kLane, header_.lane);
  store(at + offset::kFlags, header_.flags);
  store(at + offset::kSectionCount, static_cast<std::uint16_t>(n_sections_));
  store(at + offset::kLayer, header_.layer);
  store(at + offset::kSession, header_.session);
  store(at + offset::kSequence, header_.sequence);
  store(at + offset::kEpoch, header_.epoch);
  store(at + offset::kBodyLength, static_cast<std::uint32_t>(total_ - kHeaderBytes));
  store(at + offset::kCreditFrames, header_.credit_frames);
  store(at + offset::kCreditBytes, header_.credit_bytes);
  store(at + offset::kChecksum, std::uint64_t{0});
  if ((header_.flags & kFlagNoChecksum) != 0) return std::span(parts_).first(n_parts_);
  Checksum checksum;
  checksum.add_header(at);
  for (const auto part : std::span(parts_).subspan(1, n_parts_ - 1)) checksum.add(part);
  store(at + offset::kChecksum, checksum.value());
  return std::span(parts_).first(n_parts_);
}

}  // namespace terrace::wire
