#include "coordinator/legs/lane.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace terrace::legs {
namespace {

constexpr std::chrono::seconds kPingEvery{1};
constexpr std::uint64_t kMostCredit = std::uint64_t{1} << 40;  // a grant beyond it is a fault, not a window

}  // namespace

Lane::Lane(const LaneOptions& options, std::unique_ptr<transport::Connection> connection)
    : options_(options), connection_(std::move(connection)), last_heard_(Clock::now()), last_ping_(last_heard_) {}

Lane::~Lane() = default;

Error Lane::gone(const std::string& why) const {
  return Error(ErrorCode::kPeerGone,
               fmt::format("{}: the node is lost ({} lane): {}", options_.node, name(options_.lane), why));
}

Result<std::unique_ptr<Lane>> Lane::open(transport::Transport& transport, const LaneOptions& options) {
  transport::Options link;
  link.largest_frame = options.largest_frame;
  link.receive_window = std::max(options.receive_window, options.largest_frame);
  auto connection = transport.connect(options.data_address, link, options.connect_timeout);
  if (!connection.ok())
    return Error(connection.error().code(),
                 fmt::format("{}: its data port cannot be reached: {}", options.node, connection.error().text()));
  std::unique_ptr<Lane> lane(new Lane(options, std::move(*connection)));
  TERRACE_RETURN_IF_ERROR(lane->greet());
  return lane;
}

Status Lane::greet() {
  wire::Hello hello;
  hello.token = options_.token;
  hello.largest_frame = options_.largest_frame;
  wire::FrameBuilder builder;
  builder.begin(next_header(wire::FrameType::kHello));
  wire::add_hello(builder, hello);
  TERRACE_ASSIGN_OR_RETURN(const transport::SendTicket hello_ticket, send_parts(builder.finish()));
  bool sent = false;
  bool welcomed = false;
  const auto on_frame = [&](const wire::Frame& frame, std::span<const std::byte>) -> Result<bool> {
    if (welcomed || frame.header.type != wire::FrameType::kWelcome)
      return Error(ErrorCode::kCorrupt, fmt::format("a {} frame came where Welcome was due", name(frame.header.type)));
    TERRACE_ASSIGN_OR_RETURN(welcome_, wire::read_welcome(frame));
    welcomed = true;
    return false;
  };
  const auto on_sent = [&](transport::SendTicket ticket) { sent = sent || ticket == hello_ticket; };
  const auto deadline = Clock::now() + options_.connect_timeout;
  while (!welcomed || !sent) {
    TERRACE_RETURN_IF_ERROR(poll({on_frame, on_sent}));
    if (welcomed && sent) break;
    if (Clock::now() >= deadline) return gone("it did not answer our Hello");
    TERRACE_RETURN_IF_ERROR(wait(std::chrono::milliseconds(100)));
  }
  if (welcome_.credit_frames == 0 || welcome_.credit_bytes == 0 || welcome_.credit_bytes > kMostCredit ||
      welcome_.largest_frame == 0)
    return Error(ErrorCode::kCorrupt, fmt::format("{}: its Welcome grants {} frames of {} bytes", options_.node,
                                                  welcome_.credit_frames, welcome_.credit_bytes));
  credit_frames_ += welcome_.credit_frames;
  credit_bytes_ += welcome_.credit_bytes;
  return {};
}

wire::FrameHeader Lane::next_header(wire::FrameType type) {
  wire::FrameHeader header;
  header.type = type;
  header.lane = options_.lane;
  header.session = options_.session;
  header.sequence = next_sequence_++;
  return header;
}

// The transport knows the address of the data port; people know the node by the one of --node.
Result<transport::SendTicket> Lane::send_parts(std::span<const std::span<const std::byte>> parts) {
  auto ticket = connection_->send(parts);
  if (!ticket.ok() && ticket.error().code() != ErrorCode::kBusy) return gone(ticket.error().text());
  return ticket;
}

Result<transport::SendTicket> Lane::send(wire::FrameBuilder& builder) {
  const auto parts = builder.finish();
  TERRACE_CHECK(has_credit(builder.bytes()), "a frame was sent without credit");
  TERRACE_ASSIGN_OR_RETURN(const transport::SendTicket ticket, send_parts(parts));
  credit_frames_ -= 1;
  credit_bytes_ -= builder.bytes();
  return ticket;
}

void Lane::send_control(wire::FrameType type, std::uint64_t sequence) {
  const auto free = std::find_if(control_frames_.begin(), control_frames_.end(),
                                 [](const ControlFrame& frame) { return frame.ticket == 0; });
  if (free == control_frames_.end()) return;  // eight are unsent: one more tells the node nothing
  wire::FrameHeader header = next_header(type);
  if (sequence != 0) header.sequence = sequence;
  free->builder.begin(header);
  if (auto ticket = connection_->send(free->builder.finish()); ticket.ok()) free->ticket = *ticket;
}

Status Lane::take_credit(const wire::FrameHeader& header) {
  if (header.credit_bytes > kMostCredit || credit_bytes_ + header.credit_bytes > kMostCredit)
    return Error(ErrorCode::kCorrupt, fmt::format("it grants {} bytes of credit", header.credit_bytes));
  credit_frames_ += header.credit_frames;
  credit_bytes_ += header.credit_bytes;
  return {};
}

Status Lane::take_frame(std::span<const std::byte> bytes, const Handlers& handlers) {
  auto frame = wire::decode_frame(bytes);
  if (!frame.ok()) return frame.error();
  const wire::FrameHeader& header = frame->header;
  if (header.session != options_.session || header.lane != options_.lane)
    return Error(ErrorCode::kCorrupt, fmt::format("a {} frame of another session or lane", name(header.type)));
  TERRACE_RETURN_IF_ERROR(take_credit(header));
  bool kept = false;
  switch (header.type) {
    case wire::FrameType::kPing:
      send_control(wire::FrameType::kPong, header.sequence);
      break;
    case wire::FrameType::kPong:
    case wire::FrameType::kCredit:
      break;
    case wire::FrameType::kClose:
      return gone("it said goodbye");
    case wire::FrameType::kError:
      if (header.sequence == 0) {
        TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(*frame));
        return Error(message.code, message.text);
      }
      [[fallthrough]];
    case wire::FrameType::kWelcome:
    case wire::FrameType::kReply:
    case wire::FrameType::kBusy: {
      TERRACE_ASSIGN_OR_RETURN(kept, handlers.on_frame(*frame, bytes));
      break;
    }
    default:
      return Error(ErrorCode::kCorrupt, fmt::format("a {} frame, which a node never sends", name(header.type)));
  }
  if (!kept) connection_->release(bytes);
  return {};
}

Status Lane::poll(const Handlers& handlers) {
  std::array<transport::Event, 16> events;
  for (;;) {
    const std::size_t n = connection_->poll(events);
    for (std::size_t i = 0; i < n; ++i) {
      const transport::Event& event = events[i];
      switch (event.kind) {
        case transport::Event::Kind::kReceived: {
          last_heard_ = Clock::now();
          const Status taken = take_frame(event.frame, handlers);
          if (taken.ok()) break;
          connection_->close();
          if (taken.error().code() == ErrorCode::kPeerGone) return taken;
          return taken.error().in(options_.node);
        }
        case transport::Event::Kind::kSent: {
          const auto control = std::find_if(control_frames_.begin(), control_frames_.end(),
                                            [&](const ControlFrame& frame) { return frame.ticket == event.ticket; });
          if (control != control_frames_.end())
            control->ticket = 0;
          else
            handlers.on_sent(event.ticket);
          break;
        }
        case transport::Event::Kind::kClosed:
          return gone(connection_->close_reason().text());
      }
    }
    if (n < events.size()) return {};
  }
}

void Lane::expect_life() {
  last_heard_ = Clock::now();
  last_ping_ = last_heard_;
}

Status Lane::wait(std::chrono::microseconds timeout) {
  if (transport::wait(*connection_, std::min<std::chrono::microseconds>(timeout, kPingEvery))) return {};
  const auto now = Clock::now();
  if (now - last_heard_ > options_.liveness_timeout)
    return gone(fmt::format("no sign of life for {} ms", options_.liveness_timeout.count()));
  if (now - std::max(last_heard_, last_ping_) >= kPingEvery) {
    last_ping_ = now;
    send_control(wire::FrameType::kPing, 0);
  }
  return {};
}

void Lane::close() {
  send_control(wire::FrameType::kClose, 0);
  const auto ignore_frame = [](const wire::Frame&, std::span<const std::byte>) -> Result<bool> { return false; };
  const auto ignore_sent = [](transport::SendTicket) {};
  (void)poll({ignore_frame, ignore_sent});
  connection_->close();
}

}  // namespace terrace::legs
