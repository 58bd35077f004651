#include "coordinator/legs/node_leg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/units.h"
#include "common/wire/pack.h"

namespace terrace::legs {

static_assert(sizeof(kernels::Pair) == sizeof(wire::Pair) && sizeof(RowRange) == sizeof(wire::RowRange));

namespace {

constexpr std::uint16_t kNone = 0xffff;

std::uint64_t us_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

wire::BatchShape shape_of(const wire::BatchInfo& info) {
  return {info.n_rows, info.n_pairs, info.n_ranges, info.d_model, info.gate_class, info.up_class};
}

}  // namespace

// One reply that came and was not yet added.
struct HeldReply {
  wire::ReplyView view;
  std::span<const std::byte> bytes;
};

struct NodeLeg::OpenLane {
  std::unique_ptr<Lane> lane;
  std::vector<OpenBatch*> waiting;  // for credit, in order
  std::uint64_t reply_bytes = 0;    // of all open batches, replies at their widest: within the receive window
};

// A batch from submit() to collect(). All vectors keep their memory when the batch is used again.
struct NodeLeg::OpenBatch {
  Ticket ticket = 0;  // 0: free
  Clock::time_point submitted;
  OpenLane* lane = nullptr;
  std::uint64_t sequence = 0;
  transport::SendTicket send_ticket = 0;
  bool sent = false;  // the transport has given the frame's memory back
  std::uint64_t frame_bytes = 0;
  std::uint64_t reply_bytes = 0;  // all replies at their widest
  std::uint64_t epoch = 0;
  std::uint32_t layer = 0;

  wire::FrameBuilder builder;
  wire::BatchInfo info;
  std::vector<std::uint16_t> row_of;      // [info.n_rows] the caller's row of each row that travels
  std::vector<std::uint16_t> compact_of;  // [caller's rows] the inverse; kNone where a row has no pair
  std::vector<wire::Pair> pairs;
  std::vector<wire::RowRange> ranges;
  std::vector<std::uint32_t> range_pairs;  // [ranges] pairs of each
  std::vector<std::uint8_t> answered;      // [ranges]
  std::size_t n_answered = 0;
  std::vector<std::byte> gate_rows, up_rows;  // only when some rows do not travel
  std::span<const std::byte> gate_span, up_span;

  std::vector<HeldReply> replies;
  std::optional<Error> refused;  // the node's answer to this batch was an error

  bool done() const { return refused.has_value() || n_answered == ranges.size(); }
};

NodeLeg::NodeLeg(const NodeLegOptions& options, std::unique_ptr<Lane> latency, std::unique_ptr<Lane> bulk)
    : options_(options), latency_(std::make_unique<OpenLane>()), bulk_(std::make_unique<OpenLane>()) {
  latency_->lane = std::move(latency);
  bulk_->lane = std::move(bulk);
}

NodeLeg::~NodeLeg() = default;

NodeLeg::OpenBatch& NodeLeg::free_batch() {
  for (auto& batch : batches_)
    if (batch->ticket == 0) return *batch;
  return *batches_.emplace_back(std::make_unique<OpenBatch>());
}

NodeLeg::OpenBatch* NodeLeg::find(Ticket ticket) {
  for (auto& batch : batches_)
    if (ticket != 0 && batch->ticket == ticket) return batch.get();
  return nullptr;
}

// Gives row_of and compact_of, and the rows as they will travel: the caller's memory when all rows do, else a copy of
// those that have a pair here.
void NodeLeg::compact_rows(OpenBatch& open, const LegBatch& batch) {
  open.compact_of.assign(batch.n_rows, kNone);
  for (const kernels::Pair& pair : batch.pairs) open.compact_of[pair.row] = 0;
  open.row_of.clear();
  for (std::uint32_t row = 0; row < batch.n_rows; ++row) {
    if (open.compact_of[row] == kNone) continue;
    open.compact_of[row] = static_cast<std::uint16_t>(open.row_of.size());
    open.row_of.push_back(static_cast<std::uint16_t>(row));
  }
  const auto gather = [&](const kernels::RowsView& rows, std::vector<std::byte>& copy) -> std::span<const std::byte> {
    const std::size_t bytes = row_bytes(rows.activation, options_.limits.d_model);
    if (open.row_of.size() == batch.n_rows && rows.stride == bytes) return {rows.data, bytes * batch.n_rows};
    copy.resize(bytes * open.row_of.size());
    for (std::size_t i = 0; i < open.row_of.size(); ++i)
      std::memcpy(copy.data() + i * bytes, rows.row(open.row_of[i]), bytes);
    return copy;
  };
  open.gate_span = gather(batch.gate_rows, open.gate_rows);
  const bool same = batch.up_rows.activation == batch.gate_rows.activation;
  open.up_span = same ? open.gate_span : gather(batch.up_rows, open.up_rows);
}

// The pairs of the rows that travel, and the ranges that have any, with the pairs and reply bytes of each.
void NodeLeg::compact_pairs(OpenBatch& open, const LegBatch& batch) {
  open.pairs.clear();
  for (const kernels::Pair& pair : batch.pairs)
    open.pairs.push_back({open.compact_of[pair.row], pair.expert, pair.weight});
  open.ranges.clear();
  for (const RowRange& range : batch.ranges) {
    const auto begin = std::lower_bound(open.row_of.begin(), open.row_of.end(), range.first);
    const auto end = std::lower_bound(begin, open.row_of.end(), range.first + range.count);
    if (begin == end) continue;
    open.ranges.push_back(
        {static_cast<std::uint32_t>(begin - open.row_of.begin()), static_cast<std::uint32_t>(end - begin)});
  }
  open.range_pairs.assign(open.ranges.size(), 0);
  for (const wire::Pair& pair : open.pairs) {
    const auto after =
        std::upper_bound(open.ranges.begin(), open.ranges.end(), pair.row,
                         [](std::uint32_t row, const wire::RowRange& range) { return row < range.first; });
    TERRACE_CHECK(after != open.ranges.begin() && pair.row - (after - 1)->first < (after - 1)->count,
                  "a pair whose row is in no range");
    ++open.range_pairs[static_cast<std::size_t>(after - open.ranges.begin()) - 1];
  }
}

void NodeLeg::fill(OpenBatch& open, const LegBatch& batch) {
  compact_rows(open, batch);
  compact_pairs(open, batch);
  open.answered.assign(open.ranges.size(), 0);
  open.n_answered = 0;
  open.replies.clear();
  open.refused.reset();

  open.epoch = batch.epoch;
  open.layer = batch.layer;
  open.info = wire::BatchInfo{};
  open.info.n_rows = static_cast<std::uint32_t>(open.row_of.size());
  open.info.n_pairs = static_cast<std::uint32_t>(open.pairs.size());
  open.info.n_ranges = static_cast<std::uint32_t>(open.ranges.size());
  open.info.d_model = options_.limits.d_model;
  open.info.remaining_us = static_cast<std::uint32_t>(
      std::min<std::int64_t>(std::chrono::microseconds(options_.batch_timeout).count(), UINT32_MAX));
  open.info.form = wire::ReplyForm::kSum;
  open.info.priority = batch.priority == Priority::kDecode ? wire::Priority::kDecode : wire::Priority::kPrompt;
  open.info.gate_class = batch.gate_rows.activation;
  open.info.up_class = batch.up_rows.activation;
  open.frame_bytes = wire::batch_frame_bytes(shape_of(open.info));
  open.reply_bytes = 0;
  for (std::size_t i = 0; i < open.ranges.size(); ++i)
    open.reply_bytes += wire::widest_reply_frame_bytes(open.info.form, open.ranges[i].count, open.range_pairs[i],
                                                       options_.limits.d_model) +
                        latency_->lane->seal_bytes();
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
  if (lost_) return *lost_;
  TERRACE_CHECK(!batch.pairs.empty(), "a batch without pairs was given to a node");
  OpenLane& lane = batch.priority == Priority::kDecode ? *latency_ : *bulk_;
  OpenBatch& open = free_batch();
  open.submitted = Clock::now();
  fill(open, batch);
  TERRACE_RETURN_IF_ERROR(check_room(open, lane));
  open.lane = &lane;
  open.ticket = next_ticket_++;
  open.sent = false;
  open.send_ticket = 0;
  lane.waiting.push_back(&open);
  lane.reply_bytes += open.reply_bytes;
  send_waiting(lane);
  if (!lane.waiting.empty()) progress();  // for credit, or to hear why it cannot be sent
  if (lost_) {
    end(open);
    return *lost_;
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
    lane.waiting.erase(lane.waiting.begin());
  }
}

Result<bool> NodeLeg::take_answer(OpenLane& lane, const wire::Frame& frame, std::span<const std::byte> bytes) {
  const auto found = std::find_if(batches_.begin(), batches_.end(), [&](const auto& batch) {
    return batch->ticket != 0 && batch->lane == &lane && batch->send_ticket != 0 &&
           batch->sequence == frame.header.sequence;
  });
  if (found == batches_.end())
    return Error(ErrorCode::kCorrupt, fmt::format("a {} frame for batch {}, which is not open",
                                                  wire::name(frame.header.type), frame.header.sequence));
  OpenBatch& open = **found;
  if (frame.header.type == wire::FrameType::kBusy) return false;  // it will answer; liveness is satisfied
  if (frame.header.type == wire::FrameType::kError) {
    TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
    open.refused = Error(message.code, fmt::format("{}: layer {}: {}", options_.name, open.layer, message.text));
    return false;
  }
  TERRACE_ASSIGN_OR_RETURN(const wire::ReplyView reply, wire::read_reply(frame, options_.limits));
  TERRACE_RETURN_IF_ERROR(check_reply(open, reply));
  open.answered[reply.info.range_index] = 1;
  ++open.n_answered;
  open.replies.push_back({reply, bytes});
  if (open.done()) counters_.round_trip_us += us_since(open.submitted);
  return true;
}

// That the reply is one that was asked for. Its packed rows are checked where they are added.
Status NodeLeg::check_reply(const OpenBatch& open, const wire::ReplyView& reply) const {
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
  return {};
}

Status NodeLeg::poll(OpenLane& lane) {
  const auto on_frame = [&](const wire::Frame& frame, std::span<const std::byte> bytes) {
    return take_answer(lane, frame, bytes);
  };
  const auto on_sent = [&](transport::SendTicket ticket) {
    for (auto& batch : batches_)
      if (batch->ticket != 0 && batch->lane == &lane && batch->send_ticket == ticket) batch->sent = true;
  };
  TERRACE_RETURN_IF_ERROR(lane.lane->poll({on_frame, on_sent}));
  send_waiting(lane);
  return {};
}

void NodeLeg::progress() {
  for (OpenLane* lane : {latency_.get(), bulk_.get()})
    if (lane->reply_bytes != 0) poll_or_lose(*lane);
}

void NodeLeg::poll_or_lose(OpenLane& lane) {
  if (lost_) return;
  if (const Status polled = poll(lane); !polled.ok()) (void)lost(polled.error());
}

// The transport may still hold rows that callers lent us: with their tickets collected they would be read too late.
Status NodeLeg::lost(const Error& error) {
  if (!lost_) {
    lost_ = error;
    latency_->lane->abort(error);
    bulk_->lane->abort(error);
  }
  return *lost_;
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
  const auto start = Clock::now();
  open.lane->lane->expect_life();
  while (!lost_) {
    const auto waited = Clock::now() - start;
    poll_or_lose(*open.lane);
    if (waited > Lane::kLongestWait)  // the other lane too: its pings want an answer
      for (OpenLane* lane : {latency_.get(), bulk_.get()}) poll_or_lose(*lane);
    if (lost_) break;
    if (open.done() && open.sent) return {};
    if (waited > options_.batch_timeout) return lost(not_answered(open));
    if (options_.waiting == Waiting::kSpinThenPark && waited < kSpinTime) continue;
    if (const Status waiting = open.lane->lane->wait(Lane::kLongestWait); !waiting.ok()) return lost(waiting.error());
  }
  return *lost_;
}

Status NodeLeg::add_replies(OpenBatch& open, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  for (const HeldReply& reply : open.replies) {
    const wire::RowRange range = open.ranges[reply.view.info.range_index];
    std::span<const std::byte> packed = reply.view.sums;
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const std::size_t row = open.row_of[range.first + i];
      const auto used = wire::unpack_add_row(packed, {sums.row(row), sums.d_model});
      if (!used.ok())
        return used.error().in(fmt::format("{}: its answer to row range {} of batch {}", options_.name,
                                           reply.view.info.range_index, open.sequence));
      packed = packed.subspan(*used);
    }
    for (const std::uint16_t row : reply.view.failed_rows) failed[open.row_of[row]] = 1;
    counters_.compute_us += reply.view.info.compute_us;
  }
  return {};
}

Status NodeLeg::collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  OpenBatch* open = find(ticket);
  TERRACE_CHECK(open != nullptr, "collect() of a ticket that is not open");
  TERRACE_CHECK(sums.d_model == options_.limits.d_model, "sums of another width than the node's rows");
  const auto start = Clock::now();
  Status status = wait_for(*open);
  counters_.wait_us += us_since(start);
  if (status.ok() && open->refused) status = *open->refused;
  if (status.ok()) {
    status = add_replies(*open, sums, failed);
    if (!status.ok()) (void)lost(status.error());
  }
  end(*open);
  return status;
}

void NodeLeg::end(OpenBatch& open) {
  for (const HeldReply& reply : open.replies) open.lane->lane->release(reply.bytes);
  open.replies.clear();
  std::erase(open.lane->waiting, &open);
  open.lane->reply_bytes -= open.reply_bytes;
  open.ticket = 0;
}

transport::TransportStats NodeLeg::stats() const {
  transport::TransportStats sum;
  for (const OpenLane* lane : {latency_.get(), bulk_.get()}) {
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
}

LegCounters NodeLeg::counters() const {
  LegCounters counters = counters_;
  const transport::TransportStats now = stats();
  counters.bytes_sent = now.bytes_sent - stats_before_.bytes_sent;
  counters.bytes_received = now.bytes_received - stats_before_.bytes_received;
  return counters;
}

void NodeLeg::close() {
  for (OpenLane* lane : {latency_.get(), bulk_.get()}) {
    // Where a ticket was never collected, its rows may be gone: nothing more is sent, no goodbye either.
    if (lane->reply_bytes != 0) lane->lane->abort(Error(ErrorCode::kPeerGone, options_.name + ": closed by this side"));
    lane->lane->close();
  }
}

}  // namespace terrace::legs
