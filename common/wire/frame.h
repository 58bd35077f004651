// Frames: what travels on a data connection. docs/wire.md is the specification; this is its C++ side.
//
//   header  64 bytes, little-endian, below
//   body    section_count sections, each a 16-byte section header and its data, padded with zero bytes to 16
//
// A decoder takes bytes and gives a typed view into them, or a named error; nothing is copied or allocated. Every byte
// from a peer is hostile until decode_frame() and the section's own reader have passed it.
// Threads  Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"

namespace terrace::wire {

inline constexpr std::uint32_t kMagic = 0x43525254;  // "TRRC"
inline constexpr std::uint16_t kVersion = 1;         // of frames and sections
inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kSectionHeaderBytes = 16;
inline constexpr std::size_t kAlignment = 16;
// No session may announce a larger frame.
inline constexpr std::uint64_t kLargestFrame = std::uint64_t{1} << 30;
inline constexpr std::size_t kMaxSections = 16;

enum class FrameType : std::uint8_t {
  kHello = 1,    // first frame of a connection, from the coordinator: section kHello
  kWelcome = 2,  // the node's answer: section kWelcome
  kBatch = 3,    // pairs to compute: kBatch, kRows (one or two), kPairs, kRanges
  kReply = 4,    // one row range of a batch: kReply, kSums or kSlots, kFailedRows where any
  kBusy = 5,     // an answer instead of silence: kBusy
  kPing = 6,     // either way, any time; no sections
  kPong = 7,     // its answer: same sequence
  kCredit = 8,   // only gives credit (header fields); no sections
  kCancel = 9,   // the batch with this sequence is wanted no more; no sections
  kError = 10,   // what the sender could not do: kError. sequence names the batch, 0 the connection
  kClose = 11,   // goodbye; nothing follows
  kSlab = 12,    // weights lane: a piece of a slab: kSlab, kSlabBytes
  // Only before a connection's hello, by common/transport/sealed.
  kChallenge = 13,  // first of all, from the node: kChallenge
  kProof = 14,      // from the coordinator: kProof
  kAccept = 15,     // the node's own proof: kAccept
  // Only where common/transport/ucx sets a connection up, before everything else.
  kEndpoint = 16,  // either way, once: kEndpoint
};

// What a session has connections for (docs/wire.md 1).
enum class Lane : std::uint8_t { kLatency = 0, kBulk = 1, kWeights = 2 };
inline constexpr std::size_t kLanes = 3;

// A frame on a sealed connection has no checksum: eight zero bytes stand there.
inline constexpr std::uint16_t kFlagNoChecksum = 1;
inline constexpr std::uint16_t kKnownFlags = kFlagNoChecksum;
// Behind the body of a sealed frame, and in its body_length as it travels.
inline constexpr std::uint64_t kSealBytes = 16;

const char* name(Lane lane);
const char* name(FrameType type);

struct FrameHeader {
  FrameType type = FrameType::kPing;
  Lane lane = Lane::kLatency;
  std::uint16_t flags = 0;          // of kKnownFlags; any other bit is refused
  std::uint16_t section_count = 0;  // set by FrameBuilder
  std::uint32_t layer = 0;
  std::uint64_t session = 0;
  std::uint64_t sequence = 0;  // rising by one per lane and direction, from 1; a reply carries its batch's
  std::uint64_t epoch = 0;
  std::uint32_t body_length = 0;  // set by FrameBuilder
  // Credit given to the receiver of this frame, on this lane, added to what it has.
  std::uint32_t credit_frames = 0;
  std::uint64_t credit_bytes = 0;
};

enum class SectionTag : std::uint16_t {
  kHello = 1,
  kWelcome = 2,
  kBatch = 3,
  kRows = 4,
  kPairs = 5,
  kRanges = 6,
  kReply = 7,
  kSums = 8,
  kSlots = 9,
  kFailedRows = 10,
  kBusy = 11,
  kError = 12,
  kSlab = 13,
  kSlabBytes = 14,
  kChallenge = 15,
  kProof = 16,
  kAccept = 17,
  kEndpoint = 18,
};

const char* name(SectionTag tag);

struct Section {
  SectionTag tag = SectionTag::kHello;
  std::uint16_t detail = 0;         // by tag: kRows: 0 gate's rows, 1 up's rows; else 0
  std::span<const std::byte> data;  // without padding; 16-byte aligned when the frame is
};

// A decoded frame: a view into the received bytes.
struct Frame {
  FrameHeader header;
  std::array<Section, kMaxSections> sections;  // [header.section_count]
  std::span<const Section> all() const { return {sections.data(), header.section_count}; }
  // The one section with this tag and detail; null if absent.
  const Section* find(SectionTag tag, std::uint16_t detail = 0) const;
};

// Total length (header and body) of the frame whose first kHeaderBytes are given, read before the rest has arrived.
// kCorrupt: not our magic or version, or longer than `largest_frame`: the connection must be closed.
Result<std::uint64_t> frame_length(std::span<const std::byte> header, std::uint64_t largest_frame);
// The same where the whole frame has come at once: `bytes` long, its first kHeaderBytes (or all of fewer) in `header`.
Status check_frame_length(std::span<const std::byte> header, std::uint64_t bytes, std::uint64_t largest_frame);

// Fields of a header as it lies there, checked or not, for those that change frames under way. `header` has at least
// kHeaderBytes.
std::uint16_t flags(std::span<const std::byte> header);
std::uint32_t body_length(std::span<const std::byte> header);
void set_body_length(std::span<std::byte> header, std::uint32_t bytes);

// Checks header, checksum (unless the frame says that it has none), every section's extent, alignment, padding, that
// each belongs to a frame of this type, and that no (tag, detail) stands twice. `bytes` is the whole frame and 16-byte
// aligned. kCorrupt names the field or section and its offset.
Result<Frame> decode_frame(std::span<const std::byte> bytes);

// Puts a frame together as a gather list, without copying section data. The builder owns header, section headers and
// padding; data given to add() is borrowed until the transport has sent the frame. Reusable: begin() starts anew;
// nothing is allocated. The parts point into the builder, so it stays where it is and lives until the frame is sent.
class FrameBuilder {
 public:
  static constexpr std::size_t kMaxCopied = 64;

  FrameBuilder() = default;
  FrameBuilder(const FrameBuilder&) = delete;
  FrameBuilder& operator=(const FrameBuilder&) = delete;

  void begin(const FrameHeader& header);
  // At most kMaxSections. Data of one section may come in two pieces.
  void add(SectionTag tag, std::uint16_t detail, std::span<const std::byte> data, std::span<const std::byte> more = {});
  // The same with `head` copied into the builder, at most kMaxCopied bytes: fixed structs need not outlive the call.
  void add_copy(SectionTag tag, std::uint16_t detail, std::span<const std::byte> head,
                std::span<const std::byte> more = {});
  // Computes lengths and checksum; none with kFlagNoChecksum. The parts are valid until the next begin().
  std::span<const std::span<const std::byte>> finish();
  // Length of the finished frame.
  std::uint64_t bytes() const { return total_; }

 private:
  struct Piece {
    std::array<std::byte, kSectionHeaderBytes> header{};
    std::array<std::byte, kMaxCopied> copied{};
  };
  void add_part(std::span<const std::byte> part);
  FrameHeader header_;
  alignas(16) std::array<std::byte, kHeaderBytes> header_bytes_{};
  std::array<Piece, kMaxSections> pieces_{};
  std::array<std::span<const std::byte>, 1 + 4 * kMaxSections> parts_{};
  std::size_t n_parts_ = 0;
  std::size_t n_sections_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace terrace::wire
