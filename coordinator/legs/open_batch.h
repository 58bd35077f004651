// A node's batch from submit() to its end: the rows that travel, and what has come of its ranges. Part of the node leg.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/wire/frame.h"
#include "common/wire/messages.h"
#include "coordinator/legs/leg.h"

namespace terrace::legs {

// One reply that came and was not yet added: a view into the receive buffer.
struct HeldReply {
  wire::ReplyView view;
  std::span<const std::byte> bytes;  // empty: none is held
};

// A range of the batch as it was submitted.
struct OpenRange {
  static constexpr std::uint32_t kAbsent = UINT32_MAX;

  std::uint32_t travels_as = kAbsent;  // index of it among those that travel; a range without a pair does not
  RangeState state = RangeState::kClosed;
};

// All vectors keep their memory when the batch is used again.
struct OpenBatch {
  Ticket ticket = 0;  // 0: free
  bool abandoned = false;
  StepClock::TimePoint submitted{};
  StepClock::Duration soft{0}, hard{0};  // limits, from `submitted`
  bool late = false;                     // past its soft limit
  bool moved = false;                    // a Busy has moved the limit, which it may once
  std::size_t lane = 0;                  // of the leg: 0 is the latency lane, the others are of the bulk lane
  std::uint64_t sequence = 0;
  transport::SendTicket send_ticket = 0;
  bool sent = false;  // the transport has given the frame's memory back
  std::uint64_t frame_bytes = 0;
  std::uint64_t reply_bytes = 0;  // all replies at their widest
  std::uint64_t epoch = 0;
  std::uint32_t layer = 0;
  Priority priority = Priority::kDecode;

  wire::FrameBuilder builder;
  wire::BatchInfo info;
  std::vector<std::uint16_t> row_of;      // [info.n_rows] the caller's row of each row that travels
  std::vector<std::uint16_t> compact_of;  // [caller's rows] the inverse; kNone where a row has no pair
  std::vector<wire::Pair> pairs;
  std::vector<wire::RowRange> ranges;      // those that travel
  std::vector<std::uint32_t> range_pairs;  // [ranges] pairs of each
  std::vector<HeldReply> replies;          // [ranges]
  std::vector<std::uint32_t> sums_begin;   // [info.n_rows] where a row's packed sums begin, once its reply is checked
  std::vector<std::uint8_t> answered;      // [ranges]
  std::size_t n_answered = 0;
  std::uint64_t compute_us = 0;               // as the replies say, so far
  std::vector<OpenRange> callers_ranges;      // [the caller's ranges]
  std::vector<std::byte> gate_rows, up_rows;  // only when some rows do not travel
  std::span<const std::byte> gate_span, up_span;
  bool borrows_rows = false;               // they travel from where the caller has them
  std::shared_ptr<const void> rows_owner;  // then

  std::optional<Error> refused;  // the node's answer to this batch was an error

  bool done() const { return refused.has_value() || n_answered == ranges.size(); }
  // Takes over what travels of `batch`. All but ticket, limits and lane.
  void fill(const LegBatch& batch, std::uint32_t d_model);

 private:
  void compact_rows(const LegBatch& batch);
  void compact_pairs(const LegBatch& batch);
};

}  // namespace terrace::legs
