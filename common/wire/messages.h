// The sections' contents, written and read. Fixed structs travel as they lie in memory (little-endian hosts only: a
// static_assert in messages.cpp says so) and are copied out, field by field checked, by the read_ functions.
// Limits come from the session (what both ends announced at open), so that a reader never trusts a count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "common/wire/frame.h"

namespace terrace::wire {

// ---- opening a connection -------------------------------------------------------------------------------------------
using Nonce = std::array<std::byte, 16>;      // random, new for each connection
using ProofCode = std::array<std::byte, 32>;  // HMAC-SHA-256

struct Challenge {
  Nonce random{};  // the node's
};
struct Proof {
  Nonce random{};  // the coordinator's
  ProofCode code{};
  std::uint32_t socket_index = 0;  // of the lane
  std::uint32_t reserved = 0;
};
struct Accept {
  ProofCode code{};
};

struct Hello {
  std::uint64_t largest_frame = 0;  // that the coordinator accepts on this lane
  std::uint32_t socket_index = 0;   // of the lane
  std::uint32_t reserved = 0;
};
struct Welcome {
  std::uint64_t largest_frame = 0;  // that the node accepts on this lane
  std::uint64_t credit_bytes = 0;   // first grant; at least one largest batch
  std::uint32_t credit_frames = 0;  // first grant; at least 1
  std::uint32_t reserved = 0;
};

// ---- batches --------------------------------------------------------------------------------------------------------
enum class ReplyForm : std::uint8_t { kSum = 0, kSlots = 1 };
enum class Priority : std::uint8_t { kDecode = 0, kPrompt = 1 };

// Lies on the wire as kernels::Pair lies in memory.
struct Pair {
  std::uint16_t row;
  std::uint16_t expert;
  float weight;
};
static_assert(sizeof(Pair) == 8);

// Rows [first, first + count) are answered together.
struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct BatchInfo {
  std::uint32_t n_rows = 0;
  std::uint32_t n_pairs = 0;
  std::uint32_t n_ranges = 0;
  std::uint32_t d_model = 0;       // values of a row
  std::uint32_t remaining_us = 0;  // until the coordinator gives up; 0: not stated
  ReplyForm form = ReplyForm::kSum;
  Priority priority = Priority::kDecode;
  ActivationClass gate_class = ActivationClass::kF32;
  ActivationClass up_class = ActivationClass::kF32;  // other than gate_class: a second kRows section follows
  std::array<std::uint32_t, 2> reserved{};
};
static_assert(sizeof(BatchInfo) == 32);

// What a session allows in a batch, and how many of its large ones may be on their way by connections of their own;
// announced at open. A node takes no more than kMostSockets, and says how many.
inline constexpr std::uint32_t kMostSockets = 4;
struct BatchLimits {
  std::uint32_t max_rows = 0;  // <= 65,536
  std::uint32_t max_pairs = 0;
  std::uint32_t max_ranges = 0;
  std::uint32_t d_model = 0;
  std::uint32_t n_experts = 0;
  std::uint32_t n_layers = 0;
  std::uint32_t sockets = 1;  // connections of the bulk lane, and as many of the weights lane
};

// A batch as it lies in the received frame.
struct BatchView {
  BatchInfo info;
  std::uint32_t layer = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::span<const std::byte> gate_rows;  // [n_rows] rows in gate_class, no gaps, quantised values -127 to 127
  std::span<const std::byte> up_rows;    // the same memory when the classes are equal
  std::span<const Pair> pairs;           // sorted by (expert, row), no pair twice; weights finite; every row in a range
  std::span<const RowRange> ranges;      // rising, disjoint, none empty, inside n_rows
};
// Adds the sections of a batch to `builder` (begun with type kBatch). Borrows all spans, copies `info`. up_rows is
// empty when the classes are equal.
void add_batch(FrameBuilder& builder, const BatchInfo& info, std::span<const std::byte> gate_rows,
               std::span<const std::byte> up_rows, std::span<const Pair> pairs, std::span<const RowRange> ranges);
// kCorrupt names what is wrong: counts over the limits, class, row bytes, a quantised value of -128, ids, order,
// weights not finite, ranges.
Result<BatchView> read_batch(const Frame& frame, const BatchLimits& limits);

// ---- replies --------------------------------------------------------------------------------------------------------
struct ReplyInfo {
  std::uint32_t range_index = 0;  // into the batch's ranges
  std::uint32_t n_rows = 0;       // rows of the range that have a pair in this batch, each once, rising
  std::uint32_t n_pairs = 0;      // pairs of the range
  std::uint32_t compute_us = 0;   // the leg's own time for the range
};
static_assert(sizeof(ReplyInfo) == 16);

struct ReplyView {
  ReplyInfo info;
  std::uint64_t sequence = 0;  // of the batch
  std::uint64_t epoch = 0;
  std::uint32_t layer = 0;
  ReplyForm form = ReplyForm::kSum;
  std::span<const std::byte> sums;             // form kSum: n_rows packed rows (pack.h), one after the other
  std::span<const float> slots;                // form kSlots: [n_pairs, d_model], the range's pairs in batch order
  std::span<const std::uint16_t> failed_rows;  // rows (of the batch) whose values are not to be used
};
// Borrows data and failed_rows, copies `info`. No section is made of failed_rows when it is empty.
void add_reply(FrameBuilder& builder, const ReplyInfo& info, ReplyForm form, std::span<const std::byte> data,
               std::span<const std::uint16_t> failed_rows);
// Counts are compared with `limits`, and sums hold exactly n_rows rows by their widths (unpack_add_row() still checks
// that these are the least); that all of it fits the batch asked for is the caller's check.
Result<ReplyView> read_reply(const Frame& frame, const BatchLimits& limits);

// ---- the rest -------------------------------------------------------------------------------------------------------
struct Busy {
  std::uint32_t expected_us = 0;  // until it is worth asking again
  std::uint32_t reserved = 0;
};
// kError: code and sentence. The text is cut at 512 bytes on both sides; after reading it is printable ASCII ('?' for
// every other byte), since it goes to terminals and logs.
struct ErrorMessage {
  ErrorCode code = ErrorCode::kInternal;
  std::string text;
};
inline constexpr std::size_t kMaxErrorText = 512;

// A piece of a slab, on the weights lane.
struct SlabPiece {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::uint64_t offset = 0;
  std::uint64_t slab_bytes = 0;  // of the whole slab
};

// What a UCX connection needs to know of the other end (docs/wire.md 14).
struct EndpointInfo {
  std::uint64_t token = 0;   // stands in every message to it
  std::uint64_t window = 0;  // bytes of frames that may be under way to it and not released there
};
struct EndpointMessage {
  EndpointInfo info;
  std::span<const std::byte> address;  // of the worker, as its UCX says it
};
inline constexpr std::size_t kLargestWorkerAddress = 4096;

// Fixed structs are copied, spans and text are borrowed.
void add_challenge(FrameBuilder& builder, const Challenge& challenge);
void add_proof(FrameBuilder& builder, const Proof& proof);
void add_accept(FrameBuilder& builder, const Accept& accept);
void add_hello(FrameBuilder& builder, const Hello& hello);
void add_welcome(FrameBuilder& builder, const Welcome& welcome);
void add_busy(FrameBuilder& builder, const Busy& busy);
void add_error(FrameBuilder& builder, ErrorCode code, std::string_view text);
void add_endpoint(FrameBuilder& builder, const EndpointMessage& message);
void add_slab_piece(FrameBuilder& builder, const SlabPiece& piece, std::span<const std::byte> data);
// These four also refuse header fields that say anything the connection's proofs do not cover.
Result<Challenge> read_challenge(const Frame& frame);
Result<Proof> read_proof(const Frame& frame);
Result<Accept> read_accept(const Frame& frame);
Result<EndpointMessage> read_endpoint(const Frame& frame);
Result<Hello> read_hello(const Frame& frame);
Result<Welcome> read_welcome(const Frame& frame);
Result<Busy> read_busy(const Frame& frame);
Result<ErrorMessage> read_error(const Frame& frame);
struct SlabPieceView {
  SlabPiece piece;
  std::span<const std::byte> data;  // not empty; offset + size <= slab_bytes
};
Result<SlabPieceView> read_slab_piece(const Frame& frame);

// Bytes on the wire of a batch and of its replies at their widest, for credit and for docs/wire.md's arithmetic.
struct BatchShape {
  std::uint32_t n_rows = 0, n_pairs = 0, n_ranges = 0, d_model = 0;
  ActivationClass gate_class = ActivationClass::kF32, up_class = ActivationClass::kF32;
};
std::uint64_t batch_frame_bytes(const BatchShape& shape);
// The widest reply to one range with `rows` rows and `pairs` pairs.
std::uint64_t widest_reply_frame_bytes(ReplyForm form, std::uint32_t rows, std::uint32_t pairs, std::uint32_t d_model);

}  // namespace terrace::wire
