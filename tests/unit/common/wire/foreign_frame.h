// Reads a frame as a peer would that trusts nothing, and holds what readers accept against what they promise. A broken
// promise ends the program: under a test it fails, under a fuzzer the input is kept.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/wire/messages.h"
#include "common/wire/pack.h"

namespace terrace::wire::test {

inline void check_rows(ActivationClass activation, std::span<const std::byte> rows, const BatchView& batch) {
  TERRACE_CHECK(rows.size() == batch.info.n_rows * row_bytes(activation, batch.info.d_model), "rows of another size");
  if (activation == ActivationClass::kF32) return;
  const std::size_t block = 4 + block_values(activation);
  for (std::size_t i = 0; i < rows.size(); ++i)
    TERRACE_CHECK(i % block < 4 || rows[i] != std::byte{0x80}, "a quantised value of -128");
}

inline void check_batch(const BatchView& batch, const BatchLimits& limits) {
  TERRACE_CHECK(batch.layer < limits.n_layers && batch.sequence > 0, "layer or sequence out of range");
  TERRACE_CHECK(batch.info.n_rows >= 1 && batch.info.n_rows <= limits.max_rows, "rows out of range");
  TERRACE_CHECK(batch.info.d_model == limits.d_model, "rows of another width");
  TERRACE_CHECK(batch.pairs.size() == batch.info.n_pairs && batch.info.n_pairs <= limits.max_pairs, "pairs");
  TERRACE_CHECK(batch.ranges.size() == batch.info.n_ranges && batch.info.n_ranges <= limits.max_ranges, "ranges");
  std::uint64_t end = 0;
  for (const RowRange& range : batch.ranges) {
    TERRACE_CHECK(range.count > 0 && range.first >= end, "ranges that overlap, fall or are empty");
    end = std::uint64_t{range.first} + range.count;
  }
  TERRACE_CHECK(end <= batch.info.n_rows, "a range beyond the rows");
  for (const Pair& pair : batch.pairs) {
    TERRACE_CHECK(pair.row < batch.info.n_rows && pair.expert < limits.n_experts, "ids out of range");
    TERRACE_CHECK(std::isfinite(pair.weight), "a weight that is not finite");
    TERRACE_CHECK(std::any_of(batch.ranges.begin(), batch.ranges.end(),
                              [&](const RowRange& range) { return pair.row - range.first < range.count; }),
                  "a pair in no range");
  }
  check_rows(batch.info.gate_class, batch.gate_rows, batch);
  check_rows(batch.info.up_class, batch.up_rows, batch);
}

inline void check_reply(const ReplyView& reply, const BatchLimits& limits) {
  TERRACE_CHECK(reply.info.range_index < limits.max_ranges && reply.info.n_rows <= limits.max_rows, "counts");
  for (const std::uint16_t row : reply.failed_rows) TERRACE_CHECK(row < limits.max_rows, "a failed row out of range");
  if (reply.form == ReplyForm::kSlots) {
    TERRACE_CHECK(reply.slots.size() == std::size_t{reply.info.n_pairs} * limits.d_model, "slots of another size");
    return;
  }
  auto sums = reply.sums;
  std::vector<std::int64_t> row(limits.d_model);
  for (std::uint32_t i = 0; i < reply.info.n_rows; ++i) {
    const auto used = unpack_add_row(sums, row);
    if (!used.ok()) return;  // a width that is not the least
    sums = sums.subspan(*used);
  }
  TERRACE_CHECK(sums.empty(), "sums longer than their rows");
}

// Reads the frame by whatever it says it is. True: it was accepted.
inline bool read_foreign_frame(std::span<const std::byte> bytes, const BatchLimits& limits) {
  const auto frame = decode_frame(bytes);
  if (!frame.ok()) {
    TERRACE_CHECK(frame.error().code() == ErrorCode::kCorrupt && !frame.error().text().empty(), "an error without why");
    return false;
  }
  switch (frame->header.type) {
    case FrameType::kBatch: {
      const auto batch = read_batch(*frame, limits);
      if (batch.ok()) check_batch(*batch, limits);
      return batch.ok();
    }
    case FrameType::kReply: {
      const auto reply = read_reply(*frame, limits);
      if (reply.ok()) check_reply(*reply, limits);
      return reply.ok();
    }
    case FrameType::kChallenge:
      return read_challenge(*frame).ok();
    case FrameType::kProof:
      return read_proof(*frame).ok();
    case FrameType::kAccept:
      return read_accept(*frame).ok();
    case FrameType::kEndpoint:
      return read_endpoint(*frame).ok();
    case FrameType::kHello:
      return read_hello(*frame).ok();
    case FrameType::kWelcome:
      return read_welcome(*frame).ok();
    case FrameType::kBusy:
      return read_busy(*frame).ok();
    case FrameType::kError: {
      const auto message = read_error(*frame);
      if (message.ok()) TERRACE_CHECK(message->text.size() <= kMaxErrorText, "a text beyond its bound");
      return message.ok();
    }
    case FrameType::kSlab: {
      const auto piece = read_slab_piece(*frame);
      if (piece.ok())
        TERRACE_CHECK(!piece->data.empty() && piece->data.size() <= piece->piece.slab_bytes - piece->piece.offset,
                      "a piece beyond its slab");
      return piece.ok();
    }
    default:
      return true;
  }
}

}  // namespace terrace::wire::test
