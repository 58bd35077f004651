// The coordinator's end of one lane, by hand: what node tests speak with.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/transport/connection.h"
#include "common/transport/sealed/link_key.h"
#include "common/wire/frame.h"
#include "common/wire/messages.h"
#include "common/wire/pack.h"
#include "tests/unit/tier_node/support/tiny_model.h"
#include "tier_node/session/session.h"

namespace terrace::node::test {

inline constexpr std::chrono::seconds kPatience{20};  // until a test gives up on a frame

// A received frame in memory of its own.
struct ReceivedFrame {
  std::vector<std::byte> bytes;
  wire::Frame frame;
  const wire::FrameHeader& header() const { return frame.header; }
  wire::FrameType type() const { return frame.header.type; }
};

inline transport::LinkKey link_key(const Session& session, std::uint64_t boot_id, wire::Lane lane) {
  return {.session = session.id(),
          .boot_id = boot_id,
          .lane = static_cast<std::uint8_t>(lane),
          .key = session.data_key(),
          .cipher = session.data_cipher()};
}

class LaneClient {
 public:
  // `transport` proves `key` (common/transport/sealed).
  LaneClient(transport::Transport& transport, const std::string& address, const transport::LinkKey& key,
             std::uint64_t largest_frame)
      : connection_(must(transport.connect(address, {.key = &key}, kPatience))),
        id_(key.session),
        largest_frame_(largest_frame),
        lane_(static_cast<wire::Lane>(key.lane)),
        socket_index_(key.socket_index) {}

  void set_session(std::uint64_t id) { id_ = id; }
  void set_largest_frame(std::uint64_t bytes) { largest_frame_ = bytes; }
  wire::FrameHeader header(wire::FrameType type) {
    wire::FrameHeader header;
    header.type = type;
    header.lane = lane_;
    header.session = id_;
    header.sequence = sequence_++;
    return header;
  }

  void say_hello() {
    builder_.begin(header(wire::FrameType::kHello));
    wire::Hello hello;
    hello.largest_frame = largest_frame_;
    hello.socket_index = socket_index_;
    wire::add_hello(builder_, hello);
    send();
  }
  // Hello and welcome.
  wire::Welcome greet() {
    say_hello();
    const auto frame = receive();
    if (!frame || frame->type() != wire::FrameType::kWelcome) throw std::runtime_error("no welcome");
    const wire::Welcome welcome = must(wire::read_welcome(frame->frame));
    credit_frames_ = welcome.credit_frames;
    credit_bytes_ = welcome.credit_bytes;
    return welcome;
  }

  // Returns the batch's sequence.
  std::uint64_t send_batch(const TestBatch& batch, std::uint64_t epoch, wire::Priority priority = {},
                           wire::ReplyForm form = {}) {
    wire::FrameHeader head = header(wire::FrameType::kBatch);
    head.layer = batch.layer;
    head.epoch = epoch;
    wire::BatchInfo info = batch.info();
    info.form = form;
    info.priority = priority;
    builder_.begin(head);
    wire::add_batch(builder_, info, batch.gate_rows, batch.up_rows, batch.pairs, batch.ranges);
    send();
    return head.sequence;
  }
  void send_piece(const wire::SlabPiece& piece, std::span<const std::byte> data) {
    builder_.begin(header(wire::FrameType::kSlab));
    wire::add_slab_piece(builder_, piece, data);
    send();
  }
  void send_plain(wire::FrameType type, std::uint64_t sequence) {
    wire::FrameHeader head = header(type);
    head.sequence = sequence;
    builder_.begin(head);
    send();
  }
  void send_error(std::uint64_t sequence, std::string_view text) {
    wire::FrameHeader head = header(wire::FrameType::kError);
    head.sequence = sequence;
    builder_.begin(head);
    wire::add_error(builder_, ErrorCode::kInternal, text);
    send();
  }
  void send_bytes(std::span<const std::byte> bytes) {
    const std::span<const std::byte> parts[] = {bytes};
    must(connection_->send(parts));
    flush();
  }

  // The next frame; none when the connection is closed or nothing came in time. Credit is taken on the way.
  std::optional<ReceivedFrame> receive(std::chrono::milliseconds timeout = kPatience) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (true) {
      if (!early_.empty()) {
        const auto frame = early_.front();
        early_.erase(early_.begin());
        return take(frame);
      }
      if (closed_) return std::nullopt;
      transport::Event event;
      if (connection_->poll({&event, 1}) == 0) {
        const auto left = std::chrono::ceil<std::chrono::microseconds>(end - std::chrono::steady_clock::now());
        if (left.count() <= 0) return std::nullopt;
        (void)transport::wait(*connection_, left);
        continue;
      }
      if (event.kind == transport::Event::Kind::kClosed) closed_ = true;
      if (event.kind == transport::Event::Kind::kReceived) return take(event.frame);
    }
  }
  // The next frame that is not kCredit.
  std::optional<ReceivedFrame> receive_answer(std::chrono::milliseconds timeout = kPatience) {
    auto frame = receive(timeout);
    while (frame && frame->type() == wire::FrameType::kCredit) frame = receive(timeout);
    return frame;
  }
  // Everything until the peer closes; false: it does not.
  bool drained() {
    while (receive()) {
    }
    return closed_;
  }
  bool closed() const { return closed_; }
  // What the node said last: an error frame, or, before it had proven itself, the reason of the end.
  wire::ErrorMessage last_words();
  // Whether the peer has gone, found out without reading anything of what it sent.
  bool left_by_peer() {
    pollfd left{connection_->wait_fd(), POLLRDHUP, 0};
    return ::poll(&left, 1, 0) > 0;
  }
  std::uint64_t credit_frames() const { return credit_frames_; }
  std::uint64_t credit_bytes() const { return credit_bytes_; }
  std::uint64_t last_frame_bytes() const { return builder_.bytes(); }

 private:
  void send() {
    must(connection_->send(builder_.finish()));
    flush();
  }
  ReceivedFrame take(std::span<const std::byte> bytes) {
    ReceivedFrame received;
    received.bytes.assign(bytes.begin(), bytes.end());
    connection_->release(bytes);
    received.frame = must(wire::decode_frame(received.bytes));
    credit_frames_ += received.header().credit_frames;
    credit_bytes_ += received.header().credit_bytes;
    return received;
  }
  // The builder is used again: waits until the frame has left. What comes meanwhile is kept for receive().
  void flush() {
    while (true) {
      transport::Event event;
      if (connection_->poll({&event, 1}) == 0) {
        (void)transport::wait(*connection_, std::chrono::milliseconds(10));
        continue;
      }
      if (event.kind == transport::Event::Kind::kSent) return;
      if (event.kind == transport::Event::Kind::kClosed) {
        closed_ = true;
        return;
      }
      early_.push_back(event.frame);
    }
  }

  std::unique_ptr<transport::Connection> connection_;
  wire::FrameBuilder builder_;
  std::vector<std::span<const std::byte>> early_;  // received while sending
  std::uint64_t id_;
  std::uint64_t largest_frame_;
  wire::Lane lane_;
  std::uint32_t socket_index_;
  std::uint64_t sequence_ = 1;
  std::uint64_t credit_frames_ = 0, credit_bytes_ = 0;
  bool closed_ = false;
};

// Adds a reply's packed rows to `sums` [n_rows, d_model] of the whole batch; `rows` that have pairs are all of them.
inline void add_reply_sums(const ReceivedFrame& reply, const TestBatch& batch, const Session& session,
                           std::vector<std::int64_t>& sums) {
  const wire::ReplyView view = must(wire::read_reply(reply.frame, session.limits().batch));
  const wire::RowRange range = batch.ranges[view.info.range_index];
  std::vector<bool> has_pair(batch.n_rows);
  for (const wire::Pair& pair : batch.pairs) has_pair[pair.row] = true;
  std::span<const std::byte> packed = view.sums;
  std::uint32_t n_rows = 0;
  for (std::uint32_t row = range.first; row < range.first + range.count; ++row) {
    if (!has_pair[row]) continue;
    ++n_rows;
    const std::size_t used = must(
        wire::unpack_add_row(packed, std::span(sums).subspan(std::size_t{row} * batch.d_model(), batch.d_model())));
    packed = packed.subspan(used);
  }
  EXPECT_EQ(n_rows, view.info.n_rows);
  EXPECT_TRUE(packed.empty());
}

inline wire::ErrorMessage error_of(const std::optional<ReceivedFrame>& frame) {
  if (!frame) return {ErrorCode::kInternal, "no frame came"};
  if (frame->type() != wire::FrameType::kError)
    return {ErrorCode::kInternal, std::string("a frame of type ") + wire::name(frame->type())};
  return must(wire::read_error(frame->frame));
}

inline wire::ErrorMessage LaneClient::last_words() {
  const auto frame = receive_answer();
  if (frame || !closed_) return error_of(frame);
  return {connection_->close_reason().code(), connection_->close_reason().text()};
}

}  // namespace terrace::node::test
