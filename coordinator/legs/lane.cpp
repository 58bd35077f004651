#include "coordinator/legs/lane.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/units.h"
#include "coordinator/legs/lane_renewal.h"

namespace terrace::legs {
namespace {

constexpr std::chrono::milliseconds kPingEvery{1000};
// A grant beyond these is a fault, not a window.
constexpr std::uint64_t kMostCreditBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostCreditFrames = std::uint64_t{1} << 32;
// Eight control frames, eight pieces of slabs, batches as far as there is room; a batch beyond waits like one without
// credit. The transport's memory for sends is warm after so many.
constexpr std::size_t kMostOpenSends = 32;
// Of 16 events, in one poll(): a node that sends without end does not keep us from our deadlines.
constexpr int kMostRounds = 16;

// What a silent node left: told apart from one that fell silent between frames.
std::string unfinished(const transport::UnfinishedFrame& frame) {
  return frame.bytes == 0 ? "" : fmt::format(", {} of a frame have come", how_much(frame));
}

}  // namespace

Lane::Lane(transport::Transport& transport, const LaneOptions& options,
           std::unique_ptr<transport::Connection> connection)
    : transport_(transport),
      options_(options),
      connection_(std::move(connection)),
      clock_(options.clock != nullptr ? options.clock : &steady_clock()),
      last_heard_(clock_->now()),
      last_ping_(last_heard_) {
  if (options.rate != nullptr) pacer_.emplace(*options.decode, *options.rate);
}

Lane::~Lane() = default;

Result<std::unique_ptr<Lane>> Lane::open(transport::Transport& transport, const LaneOptions& options) {
  LaneOptions ours = options;
  ours.receive_window = std::max(options.receive_window, options.largest_frame);
  transport::Options link;
  link.largest_frame = ours.largest_frame;
  link.receive_window = ours.receive_window;
  link.max_open_sends = kMostOpenSends;
  link.busy_poll = ours.busy_poll;
  if (ours.key) link.key = &*ours.key;
  auto connection = transport.connect(ours.data_address, link, ours.connect_timeout);
  if (!connection.ok())
    return Error(connection.error().code(),
                 fmt::format("{}: its data port cannot be reached: {}", ours.node, connection.error().text()));
  std::unique_ptr<Lane> lane(new Lane(transport, ours, std::move(*connection)));
  TERRACE_RETURN_IF_ERROR(lane->greet());
  return lane;
}

Status Lane::greet() {
  wire::Hello hello;
  hello.largest_frame = options_.largest_frame;
  hello.socket_index = options_.socket_index;
  wire::FrameBuilder builder;
  builder.begin(next_header(wire::FrameType::kHello));
  wire::add_hello(builder, hello);
  const auto hello_ticket = connection_->send(builder.finish());
  if (!hello_ticket.ok()) return fail(link_failure(hello_ticket.error()));
  ++n_unsent_;
  ++next_sequence_;
  bool sent = false;
  bool welcomed = false;
  const auto on_frame = [&](const wire::Frame& frame, std::span<const std::byte>) -> Result<bool> {
    if (welcomed || frame.header.type != wire::FrameType::kWelcome)
      return Error(ErrorCode::kCorrupt, fmt::format("a {} frame came where Welcome was due", name(frame.header.type)));
    TERRACE_ASSIGN_OR_RETURN(welcome_, wire::read_welcome(frame));
    TERRACE_RETURN_IF_ERROR(take_credit(welcome_.credit_frames, welcome_.credit_bytes));
    seal_bytes_ = connection_->security().seal_bytes;
    welcomed = true;
    return false;
  };
  const auto on_sent = [&](transport::SendTicket ticket) { sent = sent || ticket == *hello_ticket; };
  const auto deadline = clock_->now() + options_.connect_timeout;
  for (;;) {
    TERRACE_RETURN_IF_ERROR(poll({on_frame, on_sent}));
    if (welcomed && sent) return {};
    if (clock_->now() >= deadline)
      return fail(
          Error(ErrorCode::kDeadline,
                fmt::format("its data port ({}, {} lane) did not answer our Hello within {}", options_.data_address,
                            name(options_.lane), format_duration(options_.connect_timeout))));
    if (options_.stop.stop_requested())
      return fail(Error(ErrorCode::kPeerGone, "opening it was given up by this side"));
    pollfd entry = wait_entry();
    clock_->wait({&entry, 1}, std::min<StepClock::TimePoint>(deadline, clock_->now() + kLongestWait));
  }
}

wire::FrameHeader Lane::next_header(wire::FrameType type) const {
  wire::FrameHeader header;
  header.type = type;
  header.flags = seal_bytes_ > 0 ? wire::kFlagNoChecksum : std::uint16_t{0};
  header.lane = options_.lane;
  header.session = options_.session;
  header.sequence = next_sequence_;
  return header;
}

Result<transport::SendTicket> Lane::send(wire::FrameBuilder& builder) {
  if (failed_) return *failed_;
  TERRACE_CHECK(has_credit(builder.bytes()), "a frame was sent without credit");
  auto ticket = connection_->send(builder.finish());
  if (!ticket.ok()) {
    // No failure, and no text is made for it: a batch that waits is tried again at each poll, on the step's thread.
    if (ticket.error().code() == ErrorCode::kBusy) return ticket.error();
    return named(link_failure(ticket.error()));
  }
  ++next_sequence_;
  ++n_unsent_;
  credit_frames_ -= 1;
  credit_bytes_ -= builder.bytes() + seal_bytes_;
  return ticket;
}

bool Lane::send_control(wire::FrameType type, std::uint64_t sequence) {
  const auto free = std::find_if(control_frames_.begin(), control_frames_.end(),
                                 [](const ControlFrame& frame) { return frame.ticket == 0; });
  if (free == control_frames_.end() || connection_ == nullptr) return false;
  wire::FrameHeader header = next_header(type);
  if (sequence != 0) header.sequence = sequence;
  free->builder.begin(header);
  const auto ticket = connection_->send(free->builder.finish());
  if (!ticket.ok()) return false;
  if (sequence == 0) ++next_sequence_;
  free->ticket = *ticket;
  return true;
}

Status Lane::take_credit(std::uint64_t frames, std::uint64_t bytes) {
  if (frames > kMostCreditFrames - credit_frames_ || bytes > kMostCreditBytes - credit_bytes_)
    return Error(ErrorCode::kCorrupt,
                 fmt::format("it grants {} frames and {} bytes of credit beside {} and {}; no window is so large",
                             frames, bytes, credit_frames_, credit_bytes_));
  credit_frames_ += frames;
  credit_bytes_ += bytes;
  return {};
}

Status Lane::poll(const Handlers& handlers) {
  if (failed_) return *failed_;
  if (renewal_ != nullptr) return take_renewed();
  std::array<transport::Event, 16> events;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::size_t n = connection_->poll(events);
    for (const transport::Event& event : std::span(events).first(n))
      TERRACE_RETURN_IF_ERROR(take_event(event, handlers));
    if (n < events.size()) break;
  }
  if (pacer_) pacer_->follow(*connection_, clock_->now());
  near_its_end_ = connection_->near_its_end();
  return near_its_end_ && quiet() ? renew() : Status();
}

// What the node was sent it has released, and answered before that; what it sent was taken.
bool Lane::quiet() const {
  const bool none_in_use = std::all_of(control_frames_.begin(), control_frames_.end(),
                                       [](const ControlFrame& frame) { return frame.ticket == 0; });
  return none_in_use && !ping_open_ && n_unsent_ == 0 && n_held_ == 0 && all_credit_back();
}

Status Lane::renew() {
  stats_before_ = stats();
  auto renewal = LaneRenewal::start(std::move(connection_), next_header(wire::FrameType::kClose), transport_, options_);
  if (!renewal.ok()) return fail(renewal.error());
  renewal_ = std::move(*renewal);
  renewed_since_ = clock_->now();
  return {};
}

// The sequence goes on: answers are told apart by it. The grant is the new connection's.
Status Lane::take_renewed() {
  auto renewed = renewal_->take();
  if (!renewed) return {};
  renewal_.reset();
  if (!renewed->ok())
    return fail(Error(ErrorCode::kPeerGone,
                      "its connection, which had carried all the frames that "
                      "one may, could not be replaced: " +
                          renewed->error().text()));
  Lane& fresh = ***renewed;
  connection_ = std::move(fresh.connection_);
  welcome_ = fresh.welcome_;
  seal_bytes_ = fresh.seal_bytes_;
  credit_frames_ = fresh.credit_frames_;
  credit_bytes_ = fresh.credit_bytes_;
  next_sequence_ = std::max(next_sequence_, fresh.next_sequence_);
  near_its_end_ = false;
  if (pacer_) pacer_->start_again();
  expect_life();
  return {};
}

pollfd Lane::wait_entry() {
  if (renewal_ != nullptr) return {renewal_->wait_fd(), POLLIN, 0};
  if (connection_ == nullptr) return {-1, 0, 0};
  return {connection_->wait_fd(), connection_->wait_events(), 0};
}

void Lane::release(std::span<const std::byte> frame) {
  if (connection_ == nullptr) return;  // the lane failed while its connection was replaced: nothing is held then
  --n_held_;
  connection_->release(frame);
}

transport::TransportStats Lane::stats() const {
  transport::TransportStats sum = stats_before_;
  if (connection_ == nullptr) return sum;
  const transport::TransportStats now = connection_->stats();
  sum.bytes_sent += now.bytes_sent;
  sum.bytes_received += now.bytes_received;
  sum.frames_sent += now.frames_sent;
  sum.frames_received += now.frames_received;
  sum.bytes_copied += now.bytes_copied;
  return sum;
}

Status Lane::take_event(const transport::Event& event, const Handlers& handlers) {
  switch (event.kind) {
    case transport::Event::Kind::kReceived: {
      last_heard_ = clock_->now();
      const Status taken = take_frame(event.frame, handlers);
      return taken.ok() ? taken : fail(taken.error());
    }
    case transport::Event::Kind::kSent:
      take_sent(event.ticket, handlers);
      return {};
    case transport::Event::Kind::kClosed:
      break;
  }
  return fail(link_failure(connection_->close_reason()));
}

// Bytes that do not open, on a sealed link, are not the node's: they say that its link is cut, not that it is wrong.
// What a link says begins with its address, which nobody has given: the text says whose it is.
Error Lane::link_failure(const Error& why) const {
  const bool cut = seal_bytes_ > 0 && why.code() == ErrorCode::kCorrupt;
  return {cut ? ErrorCode::kPeerGone : why.code(), "its data port " + why.text()};
}

void Lane::take_sent(transport::SendTicket ticket, const Handlers& handlers) {
  for (ControlFrame& frame : control_frames_)
    if (frame.ticket == ticket) {
      frame.ticket = 0;
      return;
    }
  --n_unsent_;
  handlers.on_sent(ticket);
}

Status Lane::take_frame(std::span<const std::byte> bytes, const Handlers& handlers) {
  TERRACE_ASSIGN_OR_RETURN(const wire::Frame frame, wire::decode_frame(bytes));
  const wire::FrameHeader& header = frame.header;
  // From here on it is what the node said: its checksum fits. That it takes its leave is nothing wrong.
  const bool farewell =
      header.type == wire::FrameType::kClose || (header.type == wire::FrameType::kError && header.sequence == 0);
  wrong_ = !farewell;
  if (header.session != options_.session || header.lane != options_.lane)
    return Error(
        ErrorCode::kCorrupt,
        fmt::format("a {} frame names session {:016x}, {} lane; this is session {:016x}, {} lane", name(header.type),
                    header.session, name(header.lane), options_.session, name(options_.lane)));
  TERRACE_RETURN_IF_ERROR(take_credit(header.credit_frames, header.credit_bytes));
  TERRACE_ASSIGN_OR_RETURN(const bool kept, dispatch(frame, bytes, handlers));
  wrong_ = false;
  ++n_held_;
  if (!kept) release(bytes);
  return {};
}

Result<bool> Lane::dispatch(const wire::Frame& frame, std::span<const std::byte> bytes, const Handlers& handlers) {
  const wire::FrameHeader& header = frame.header;
  switch (header.type) {
    case wire::FrameType::kPing:
      (void)send_control(wire::FrameType::kPong, header.sequence);  // eight are unsent: one more tells the node nothing
      return false;
    case wire::FrameType::kPong:
      ping_open_ = false;
      return false;
    case wire::FrameType::kCredit:
      return false;
    case wire::FrameType::kClose:
      return Error(ErrorCode::kPeerGone, "it said goodbye");
    case wire::FrameType::kError:
      if (header.sequence == 0) {
        TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
        return Error(message.code, message.text);
      }
      return handlers.on_frame(frame, bytes);
    case wire::FrameType::kBusy:
      TERRACE_RETURN_IF_ERROR(wire::read_busy(frame));
      if (header.sequence == 0) return false;  // whatever is open will be answered: a sign of life
      return handlers.on_frame(frame, bytes);
    case wire::FrameType::kWelcome:
    case wire::FrameType::kReply:
      return handlers.on_frame(frame, bytes);
    default:
      return Error(ErrorCode::kCorrupt, fmt::format("a {} frame, which a node never sends", name(header.type)));
  }
}

void Lane::expect_life() { last_heard_ = clock_->now(); }

std::chrono::milliseconds Lane::ping_every() const {
  return std::clamp(options_.liveness_timeout / 4, std::chrono::milliseconds(1), kPingEvery);
}

// Silence counts from our ping, not from the last frame: time in which this process did not run, or did not look, is
// then never taken for the node's.
Status Lane::look_for_life(StepClock::Duration ask_after, StepClock::Duration limit) {
  if (failed_) return *failed_;
  const auto now = clock_->now();
  if (renewal_ != nullptr) {
    if (now - renewed_since_ <= limit) return {};
    return fail(
        Error(ErrorCode::kPeerGone, fmt::format("its connection, which had carried all the frames that one "
                                                "may, was not replaced within {}",
                                                format_duration(std::chrono::ceil<std::chrono::milliseconds>(limit)))));
  }
  if (ping_open_ && now - std::max(last_ping_, last_heard_) > limit)
    return fail(Error(
        ErrorCode::kPeerGone,
        fmt::format("no sign of life for {}{}", format_duration(std::chrono::ceil<std::chrono::milliseconds>(limit)),
                    unfinished(connection_->unfinished()))));
  if (!ping_open_ && now - last_heard_ >= ask_after && send_control(wire::FrameType::kPing, 0)) {
    ping_open_ = true;
    last_ping_ = now;
  }
  return {};
}

Status Lane::wait(std::chrono::microseconds timeout) {
  Lane* const lane = this;
  return wait_any({&lane, 1}, timeout);
}

Status Lane::wait_any(std::span<Lane* const> lanes, std::chrono::microseconds timeout) {
  std::array<pollfd, wire::kMostSockets> entries;
  TERRACE_CHECK(!lanes.empty() && lanes.size() <= entries.size(), "as many connections as a lane may have");
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = *lanes[i];
    TERRACE_RETURN_IF_ERROR(lane.look_for_life(lane.ping_every(), lane.options_.liveness_timeout));
    entries[i] = lane.wait_entry();
    timeout = std::min<std::chrono::microseconds>(timeout, lane.ping_every());
  }
  StepClock& clock = *lanes.front()->clock_;
  clock.wait(std::span(entries).first(lanes.size()), clock.now() + timeout);
  return {};
}

Error Lane::named(const Error& why) const {
  if (why.code() != ErrorCode::kPeerGone) return why.in(options_.node);
  return Error(why.code(),
               fmt::format("{}: the node is lost ({} lane): {}", options_.node, name(options_.lane), why.text()));
}

Status Lane::fail(const Error& why) {
  if (!failed_) {
    failed_ = named(why);
    tell_node(why);
    if (connection_ != nullptr) connection_->close();
  }
  return *failed_;
}

// Why we hang up on it, for its log, as far as the socket takes it (docs/wire.md 8). What send() borrows here is not
// read after close().
void Lane::tell_node(const Error& why) {
  if (why.code() != ErrorCode::kCorrupt || connection_ == nullptr) return;
  wire::FrameHeader header = next_header(wire::FrameType::kError);
  header.sequence = 0;
  wire::FrameBuilder builder;
  builder.begin(header);
  wire::add_error(builder, why.code(), why.text());
  (void)connection_->send(builder.finish());
  connection_->close();
}

void Lane::abort(const Error& why) {
  if (!failed_) failed_ = why;
  if (connection_ != nullptr) connection_->close();
}

void Lane::close() {
  if (failed_) return;
  (void)send_control(wire::FrameType::kClose, 0);
  const auto ignore_frame = [](const wire::Frame&, std::span<const std::byte>) -> Result<bool> { return false; };
  const auto ignore_sent = [](transport::SendTicket) {};
  (void)poll({ignore_frame, ignore_sent});
  abort(Error(ErrorCode::kPeerGone, fmt::format("{}: this side has said goodbye", options_.node)));
}

}  // namespace terrace::legs
