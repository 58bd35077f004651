#include "coordinator/legs/node_leg.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/time.h"
#include "common/base/units.h"
#include "common/wire/pack.h"
#include "coordinator/legs/open_batch.h"

namespace terrace::legs {
namespace {

// A node is asked for a sign of life after this part of its hard limit, so that nearly all of the limit is its own.
constexpr int kAskAfter = 20;

}  // namespace

struct NodeLeg::OpenLane {
  std::unique_ptr<Lane> lane;
  std::vector<OpenBatch*> waiting;  // for credit, in order
  std::uint64_t reply_bytes = 0;    // of all open batches, replies at their widest: within the receive window
};

NodeLeg::NodeLeg(const NodeLegOptions& options, std::unique_ptr<Lane> latency, std::vector<std::unique_ptr<Lane>> bulk)
    : options_(options), clock_(latency->clock()), limits_(options.first_limit) {
  const auto add = [this](std::unique_ptr<Lane> lane) {
    lanes_.push_back(std::make_unique<OpenLane>());
    lanes_.back()->lane = std::move(lane);
  };
  add(std::move(latency));
  for (std::unique_ptr<Lane>& lane : bulk) add(std::move(lane));
  TERRACE_CHECK(lanes_.size() >= 2, "a node has a bulk lane");
}

NodeLeg::NodeLeg(const NodeLegOptions& options, std::unique_ptr<Lane> latency, std::unique_ptr<Lane> bulk)
    : NodeLeg(options, std::move(latency), [&] {
        std::vector<std::unique_ptr<Lane>> one;
        one.push_back(std::move(bulk));
        return one;
      }()) {}

NodeLeg::~NodeLeg() = default;

OpenBatch& NodeLeg::free_batch() {
  for (auto& batch : batches_)
    if (batch->ticket == 0) return *batch;
  return *batches_.emplace_back(std::make_unique<OpenBatch>());
}

OpenBatch* NodeLeg::find(Ticket ticket) const {
  for (const auto& batch : batches_)
    if (ticket != 0 && batch->ticket == ticket && !batch->abandoned) return batch.get();
  return nullptr;
}

OpenBatch& NodeLeg::must_find(Ticket ticket) const {
  OpenBatch* open = find(ticket);
  TERRACE_CHECK(open != nullptr, "a ticket that is not open");
  return *open;
}

NodeLeg::OpenLane& NodeLeg::lane_of(const OpenBatch& open) const { return *lanes_[open.lane]; }

std::size_t NodeLeg::choose_lane(Priority priority) const {
  if (priority == Priority::kDecode) return 0;
  const auto least = std::min_element(lanes_.begin() + 1, lanes_.end(),
                                      [](const auto& a, const auto& b) { return a->reply_bytes < b->reply_bytes; });
  return static_cast<std::size_t>(least - lanes_.begin());
}

// The node need not compute what nobody waits for any more: it is told the hard limit.
void NodeLeg::set_limits(OpenBatch& open) {
  open.soft = limits_.soft(open.priority, open.pairs.size());
  open.hard = SoftLimits::hard(open.soft);
  const StepClock::Duration wanted = limits_.measured() ? open.hard : StepClock::Duration(options_.batch_timeout);
  open.info.remaining_us = static_cast<std::uint32_t>(std::min<std::uint64_t>(us_of(wanted), UINT32_MAX));
}

// Whether the batch can be sent at all, and its replies received beside those of the batches already open.
Status NodeLeg::check_room(const OpenBatch& open, const OpenLane& lane) const {
  const std::uint64_t most = std::min(lane.lane->largest_frame(), lane.lane->window_bytes());
  if (open.frame_bytes > most)
    return Error(ErrorCode::kRefused,
                 fmt::format("{}: a batch of {} rows is a frame of {} bytes, the node takes {}; lower --batch",
                             options_.name, open.info.n_rows, open.frame_bytes, most));
  const std::uint64_t window = lane.lane->receive_window();
  if (open.reply_bytes <= window - lane.reply_bytes) return {};
  if (lane.reply_bytes == 0)
    return Error(
        ErrorCode::kRefused,
        fmt::format("{}: the replies to a batch of {} rows may have {} bytes, the receive window has {}; lower "
                    "--batch",
                    options_.name, open.info.n_rows, open.reply_bytes, window));
  return Error(ErrorCode::kBusy,
               fmt::format("{}: replies of {} bytes do not fit into the receive window of {} beside {} of open batches",
                           options_.name, open.reply_bytes, window, lane.reply_bytes));
}

Result<Ticket> NodeLeg::submit(const LegBatch& batch) {
  if (out_) return *out_;
  TERRACE_CHECK(!batch.pairs.empty(), "a batch without pairs was given to a node");
  OpenBatch& open = free_batch();
  open.submitted = clock_.now();
  if (options_.decode != nullptr && batch.priority == Priority::kDecode) options_.decode->seen(open.submitted);
  open.fill(batch, options_.limits.d_model);
  open.lane = choose_lane(batch.priority);
  OpenLane& lane = lane_of(open);
  open.reply_bytes += open.ranges.size() * lane.lane->seal_bytes();
  set_limits(open);
  if (Status room = check_room(open, lane); !room.ok()) {
    open.rows_owner = nullptr;  // nothing of it is on its way
    return room.error();
  }
  if (lane.reply_bytes == 0) lane.lane->expect_life();
  open.ticket = next_ticket_++;
  lane.waiting.push_back(&open);
  lane.reply_bytes += open.reply_bytes;
  send_waiting(lane);
  if (!lane.waiting.empty()) progress();  // for credit, or to hear why it cannot be sent
  if (out_) {
    end(open);
    return *out_;
  }
  counters_.batches += 1;
  counters_.rows += open.info.n_rows;
  counters_.pairs += open.info.n_pairs;
  return open.ticket;
}

void NodeLeg::send_waiting(OpenLane& lane) {
  while (!lane.waiting.empty()) {
    OpenBatch& open = *lane.waiting.front();
    if (!lane.lane->has_credit(open.frame_bytes)) return;
    wire::FrameHeader header = lane.lane->next_header(wire::FrameType::kBatch);
    header.layer = open.layer;
    header.epoch = open.epoch;
    open.sequence = header.sequence;
    open.builder.begin(header);
    wire::add_batch(open.builder, open.info, open.gate_span, open.up_span, open.pairs, open.ranges);
    const auto ticket = lane.lane->send(open.builder);
    if (!ticket.ok()) return;  // busy: it waits on; gone: the lane's next poll() tells why
    open.send_ticket = *ticket;
    if (options_.decode != nullptr && open.info.priority == wire::Priority::kDecode)
      options_.decode->sent(open.frame_bytes);
    lane.waiting.erase(lane.waiting.begin());
  }
}

OpenBatch* NodeLeg::find_sent(const OpenLane& lane, std::uint64_t sequence) const {
  for (const auto& batch : batches_)
    if (batch->ticket != 0 && &lane_of(*batch) == &lane && batch->send_ticket != 0 && batch->sequence == sequence)
      return batch.get();
  return nullptr;
}

Result<bool> NodeLeg::take_answer(OpenLane& lane, const wire::Frame& frame, std::span<const std::byte> bytes) {
  OpenBatch* open = find_sent(lane, frame.header.sequence);
  if (open == nullptr)
    return Error(ErrorCode::kCorrupt, fmt::format("a {} frame for batch {}, which is not open",
                                                  wire::name(frame.header.type), frame.header.sequence));
  if (frame.header.type == wire::FrameType::kBusy) {
    TERRACE_ASSIGN_OR_RETURN(const wire::Busy busy, wire::read_busy(frame));
    take_busy(*open, busy.expected_us);
    return false;
  }
  if (frame.header.type == wire::FrameType::kError) {
    TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
    open->refused = Error(message.code, fmt::format("{}: layer {}: {}", options_.name, open->layer, message.text));
    counters_.refused += 1;
    not_suspect();
    end_if_through(*open);
    return false;
  }
  return take_reply(*open, frame, bytes);
}

// What of an abandoned batch comes is looked at like any other answer, and dropped.
Result<bool> NodeLeg::take_reply(OpenBatch& open, const wire::Frame& frame, std::span<const std::byte> bytes) {
  TERRACE_ASSIGN_OR_RETURN(const wire::ReplyView reply, wire::read_reply(frame, options_.limits));
  TERRACE_RETURN_IF_ERROR(check_reply(open, reply));
  const std::uint32_t index = reply.info.range_index;
  open.answered[index] = 1;
  open.compute_us += reply.info.compute_us;
  counters_.compute_us += reply.info.compute_us;
  not_suspect();
  const bool kept = !open.abandoned;
  if (kept) {
    open.replies[index] = {reply, bytes};
    for (OpenRange& range : open.callers_ranges)
      if (range.travels_as == index) range.state = RangeState::kReady;
  }
  if (++open.n_answered == open.ranges.size()) answered_whole(open);
  return kept;
}

void NodeLeg::answered_whole(OpenBatch& open) {
  const StepClock::Duration total = clock_.now() - open.submitted;
  counters_.round_trip_us += us_of(total);
  limits_.answered(open.priority, open.pairs.size(), total, std::chrono::microseconds(open.compute_us),
                   open.late || total > open.soft);
  end_if_through(open);
}

// It says itself how long it will take. It is believed once, and no further than to the limit of its silence.
void NodeLeg::take_busy(OpenBatch& open, std::uint32_t expected_us) {
  not_suspect();
  if (open.moved) return;
  open.moved = true;
  const StepClock::Duration expected = clock_.now() - open.submitted + std::chrono::microseconds(expected_us);
  open.soft = std::clamp(expected, open.soft, std::max(open.soft, open.hard));
}

void NodeLeg::not_suspect() {
  if (state_ == LegState::kSuspect) state_ = LegState::kOk;
}

// That the reply is one that was asked for, to its last packed row: taking it cannot fail then. Notes where rows begin.
Status NodeLeg::check_reply(OpenBatch& open, const wire::ReplyView& reply) const {
  const std::uint32_t index = reply.info.range_index;
  if (reply.layer != open.layer || reply.epoch != open.epoch || reply.form != open.info.form)
    return Error(
        ErrorCode::kCorrupt,
        fmt::format("its answer to batch {} (layer {}, epoch {}) names layer {}, epoch {}, or has another form",
                    open.sequence, open.layer, open.epoch, reply.layer, reply.epoch));
  if (index >= open.ranges.size() || open.answered[index] != 0)
    return Error(ErrorCode::kCorrupt, fmt::format("it answers row range {} of batch {}, which has {}, each once", index,
                                                  open.sequence, open.ranges.size()));
  const wire::RowRange range = open.ranges[index];
  if (reply.info.n_rows != range.count || reply.info.n_pairs != open.range_pairs[index])
    return Error(
        ErrorCode::kCorrupt,
        fmt::format("its answer to row range {} of batch {} has {} rows and {} pairs, not {} and {}", index,
                    open.sequence, reply.info.n_rows, reply.info.n_pairs, range.count, open.range_pairs[index]));
  for (const std::uint16_t row : reply.failed_rows)
    if (row < range.first || row - range.first >= range.count)
      return Error(ErrorCode::kCorrupt,
                   fmt::format("its answer to row range {} of batch {} names failed row {}, outside [{}, {})", index,
                               open.sequence, row, range.first, range.first + range.count));
  std::span<const std::byte> packed = reply.sums;
  for (std::uint32_t row = 0; reply.form == wire::ReplyForm::kSum && row < range.count; ++row) {
    const auto bytes = wire::check_packed_row(packed, options_.limits.d_model);
    if (!bytes.ok())
      return bytes.error().in(fmt::format("its answer to row range {} of batch {}", index, open.sequence));
    open.sums_begin[range.first + row] = static_cast<std::uint32_t>(packed.data() - reply.sums.data());
    packed = packed.subspan(*bytes);
  }
  return {};
}

Status NodeLeg::poll(OpenLane& lane) {
  const auto on_frame = [&](const wire::Frame& frame, std::span<const std::byte> bytes) {
    return take_answer(lane, frame, bytes);
  };
  const auto on_sent = [&](transport::SendTicket ticket) {
    for (auto& batch : batches_)
      if (batch->ticket != 0 && &lane_of(*batch) == &lane && batch->send_ticket == ticket) {
        batch->sent = true;
        end_if_through(*batch);
      }
  };
  TERRACE_RETURN_IF_ERROR(lane.lane->poll({on_frame, on_sent}));
  send_waiting(lane);
  return {};
}

void NodeLeg::progress() {
  for (const auto& lane : lanes_) {
    if (lane->reply_bytes == 0) continue;
    poll_or_lose(*lane);
    if (lane->reply_bytes != 0) look_for_life(*lane);
  }
}

void NodeLeg::poll_or_lose(OpenLane& lane) {
  if (out_) return;
  if (const Status polled = poll(lane); !polled.ok())
    (void)out(lane.lane->wrong() ? LegState::kWrong : LegState::kLost, polled.error());
}

void NodeLeg::look_for_life(OpenLane& lane) {
  if (out_) return;
  StepClock::Duration limit = SoftLimits::kLeastHard;
  for (const auto& batch : batches_)
    if (batch->ticket != 0 && &lane_of(*batch) == &lane) limit = std::max(limit, batch->hard);
  if (const Status alive = lane.lane->look_for_life(limit / kAskAfter, limit); !alive.ok())
    (void)out(LegState::kLost, alive.error());
}

// The transport may still hold rows that callers lent us: with their tickets ended they would be read too late.
Status NodeLeg::out(LegState state, const Error& error) {
  if (out_) return *out_;
  out_ = error;
  state_ = state;
  (state == LegState::kWrong ? counters_.wrongs : counters_.losses) += 1;
  for (const auto& lane : lanes_) lane->lane->abort(error);
  for (auto& batch : batches_)
    if (batch->ticket != 0 && batch->abandoned) end(*batch);
  return *out_;
}

Error NodeLeg::not_answered(const OpenBatch& open) const {
  const std::string within = format_duration(options_.batch_timeout);
  if (open.send_ticket == 0)
    return Error(ErrorCode::kDeadline,
                 fmt::format("{}: alive, but gave no credit for a batch of {} bytes (layer {}) within {}",
                             options_.name, open.frame_bytes, open.layer, within));
  return Error(ErrorCode::kDeadline, fmt::format("{}: alive, but batch {} (layer {}) was not answered within {}",
                                                 options_.name, open.sequence, open.layer, within));
}

Status NodeLeg::wait_for(OpenBatch& open) {
  const auto start = clock_.now();
  OpenLane& own = lane_of(open);
  own.lane->expect_life();
  while (!out_) {
    const auto waited = clock_.now() - start;
    poll_or_lose(own);
    if (waited > Lane::kLongestWait)  // the other lane too: its pings want an answer
      for (const auto& lane : lanes_) poll_or_lose(*lane);
    if (out_) break;
    if (open.done() && open.sent) return {};
    if (waited > options_.batch_timeout) return out(LegState::kLost, not_answered(open));
    if (options_.waiting == Waiting::kSpinThenPark && waited < kSpinTime) continue;
    if (const Status waiting = own.lane->wait(Lane::kLongestWait); !waiting.ok())
      return out(LegState::kLost, waiting.error());
  }
  return *out_;
}

Status NodeLeg::collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  OpenBatch& open = must_find(ticket);
  const auto start = clock_.now();
  Status status = wait_for(open);
  counters_.wait_us += us_of(clock_.now() - start);
  if (status.ok() && open.refused) status = *open.refused;
  for (std::size_t range = 0; status.ok() && range < open.callers_ranges.size(); ++range)
    if (open.callers_ranges[range].state == RangeState::kReady) status = take(ticket, range, sums, failed);
  end(open);
  return status;
}

RangeState NodeLeg::range_state(Ticket ticket, std::size_t range) const {
  return must_find(ticket).callers_ranges[range].state;
}

Status NodeLeg::take(Ticket ticket, std::size_t range, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  OpenBatch& open = must_find(ticket);
  OpenRange& taken = open.callers_ranges[range];
  TERRACE_CHECK(taken.state == RangeState::kReady && open.info.form == wire::ReplyForm::kSum,
                "take() of a range that is not ready, or has no sums");
  TERRACE_CHECK(sums.d_model == options_.limits.d_model, "sums of another width than the node's rows");
  HeldReply& reply = open.replies[taken.travels_as];
  const wire::RowRange rows = open.ranges[taken.travels_as];
  const auto unpack = [&](std::size_t i, std::size_t) {
    const std::size_t row = rows.first + i;
    // check_reply() has passed it.
    wire::add_checked_row(reply.view.sums.subspan(open.sums_begin[row]), {sums.row(open.row_of[row]), sums.d_model});
  };
  if (options_.parallel != nullptr && rows.count >= kRowsToShare)
    options_.parallel->run(rows.count, unpack);
  else
    Serial().run(rows.count, unpack);
  for (const std::uint16_t row : reply.view.failed_rows) failed[open.row_of[row]] = 1;
  taken.state = RangeState::kClosed;
  lane_of(open).lane->release(reply.bytes);
  reply = {};
  return {};
}

void NodeLeg::take_slots(Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed) {
  OpenBatch& open = must_find(ticket);
  TERRACE_CHECK(open.ranges.size() == 1 && open.info.form == wire::ReplyForm::kSlots && open.n_answered == 1,
                "take_slots() of a batch that has none, or not yet");
  HeldReply& reply = open.replies[0];
  TERRACE_CHECK(slots.size() == reply.view.slots.size(), "one slot of d_model values a pair");
  std::copy(reply.view.slots.begin(), reply.view.slots.end(), slots.begin());
  for (const std::uint16_t row : reply.view.failed_rows) failed[open.row_of[row]] = 1;
  for (OpenRange& range : open.callers_ranges) range.state = RangeState::kClosed;
  lane_of(open).lane->release(reply.bytes);
  reply = {};
  counters_.audited_pairs += open.pairs.size();
}

Status NodeLeg::ticket_status(Ticket ticket) const {
  if (out_) return *out_;
  const OpenBatch& open = must_find(ticket);
  if (open.refused) return *open.refused;
  return {};
}

StepClock::TimePoint NodeLeg::soft_limit(Ticket ticket) const {
  const OpenBatch& open = must_find(ticket);
  return open.submitted + open.soft;
}

void NodeLeg::set_suspect(Ticket ticket) {
  OpenBatch& open = must_find(ticket);
  if (!open.late) counters_.late += 1;
  open.late = true;
  if (state_ == LegState::kOk) state_ = LegState::kSuspect;
}

void NodeLeg::abandon(Ticket ticket) {
  OpenBatch& open = must_find(ticket);
  release_replies(open);
  open.abandoned = true;
  if (out_ || open.send_ticket == 0) {  // nothing of it is anywhere else
    end(open);
    // Nor will the node answer it. Where nothing else is out no answer would ever clear the suspicion, and nobody gives
    // a suspect leg work: a lane that was being renewed, and had no credit meanwhile, is not the node's fault.
    if (std::all_of(batches_.begin(), batches_.end(), [](const auto& batch) { return batch->ticket == 0; }))
      not_suspect();
    return;
  }
  if (!open.sent && open.borrows_rows && open.rows_owner == nullptr)
    (void)out(LegState::kLost,
              Error(ErrorCode::kPeerGone,
                    fmt::format("{}: given up with rows of batch {} unsent ({} lane)", options_.name, open.sequence,
                                wire::name(open.lane > 0 ? wire::Lane::kBulk : wire::Lane::kLatency))));
  else
    end_if_through(open);
}

// Rows of ours that a retired session still has to send would be read by the thread that ends it. No loss of the
// node's.
void NodeLeg::retire() {
  const bool sends = std::any_of(batches_.begin(), batches_.end(), [](const auto& batch) {
    return batch->ticket != 0 && !batch->sent && batch->rows_owner != nullptr;
  });
  if (!sends || out_) return;
  const LegCounters before = counters_;
  (void)out(LegState::kLost, Error(ErrorCode::kPeerGone, options_.name + ": no step uses this session any more"));
  counters_ = before;
}

void NodeLeg::add_waits(std::vector<pollfd>& entries) {
  if (out_) return;
  for (const auto& lane : lanes_)
    if (lane->reply_bytes != 0) entries.push_back(lane->lane->wait_entry());
}

void NodeLeg::release_replies(OpenBatch& open) {
  for (HeldReply& reply : open.replies) {
    if (!reply.bytes.empty()) lane_of(open).lane->release(reply.bytes);
    reply = {};
  }
}

// An abandoned batch is through when nothing of it can come and the transport reads none of its rows.
void NodeLeg::end_if_through(OpenBatch& open) {
  if (open.abandoned && open.done() && open.sent) end(open);
}

void NodeLeg::end(OpenBatch& open) {
  release_replies(open);
  OpenLane& lane = lane_of(open);
  std::erase(lane.waiting, &open);
  lane.reply_bytes -= open.reply_bytes;
  open.rows_owner = nullptr;
  open.ticket = 0;
}

transport::TransportStats NodeLeg::stats() const {
  transport::TransportStats sum;
  for (const auto& lane : lanes_) {
    const transport::TransportStats stats = lane->lane->stats();
    sum.bytes_sent += stats.bytes_sent;
    sum.bytes_received += stats.bytes_received;
  }
  return sum;
}

void NodeLeg::restart_counters() {
  LegCounters counters;
  counters.weight_bytes_sent = counters_.weight_bytes_sent;
  counters_ = counters;
  stats_before_ = stats();
  limits_.forget_worst();
}

LegCounters NodeLeg::counters() const {
  LegCounters counters = counters_;
  const transport::TransportStats now = stats();
  counters.bytes_sent = now.bytes_sent - stats_before_.bytes_sent;
  counters.bytes_received = now.bytes_received - stats_before_.bytes_received;
  return counters;
}

void NodeLeg::close() {
  for (const auto& lane : lanes_) {
    // Where a ticket was never collected, its rows may be gone: nothing more is sent, no goodbye either.
    if (lane->reply_bytes != 0) lane->lane->abort(Error(ErrorCode::kPeerGone, options_.name + ": closed by this side"));
    lane->lane->close();
  }
}

}  // namespace terrace::legs
