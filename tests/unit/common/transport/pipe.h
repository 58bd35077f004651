// One end of a connection in memory: a test reads what was sent, and decides what comes.
#pragma once

#include <poll.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/transport/connection.h"

namespace terrace::transport::test {

using Bytes = std::vector<std::byte>;

class Pipe : public Connection {
 public:
  std::deque<Bytes> sent;   // whole frames, or whatever send() was given
  bool takes_all = true;    // false: kSent waits for confirm()
  bool peer_ended = false;  // the other end has closed

  void deliver(std::span<const std::byte> frame) {
    AlignedBuffer buffer = AlignedBuffer::allocate(frame.size()).value();
    if (!frame.empty()) std::memcpy(buffer.data(), frame.data(), frame.size());
    coming_.push_back(std::move(buffer));
  }
  void confirm() { confirmed_ = n_sent_; }
  std::size_t lent() const { return lent_.size(); }
  bool closed() const { return closed_; }

  Result<SendTicket> send(std::span<const std::span<const std::byte>> parts) override {
    if (closed_) return Error(ErrorCode::kPeerGone, "the pipe is closed");
    Bytes all;
    for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
    sent.push_back(std::move(all));
    return ++n_sent_;
  }
  std::size_t poll(std::span<Event> out) override {
    if (takes_all || closed_) confirm();
    std::size_t n = 0;
    while (n < out.size() && reported_ < confirmed_) out[n++] = {Event::Kind::kSent, ++reported_, {}};
    while (n < out.size() && !closed_ && !coming_.empty()) {
      lent_.push_back(std::move(coming_.front()));
      coming_.pop_front();
      out[n++] = {Event::Kind::kReceived, 0, lent_.back().bytes()};
    }
    if (peer_ended && coming_.empty()) closed_ = true;
    if (n < out.size() && closed_ && !told_ && reported_ == confirmed_) {
      told_ = true;
      out[n++] = {Event::Kind::kClosed, 0, {}};
    }
    return n;
  }
  void set_largest_frame(std::uint64_t) override {}
  void release(std::span<const std::byte> frame) override {
    for (AlignedBuffer& buffer : lent_) {
      if (buffer.data() != frame.data()) continue;
      TERRACE_CHECK(buffer.size() == frame.size(), "released as it was given");
      std::swap(buffer, lent_.back());
      return lent_.pop_back();
    }
    TERRACE_CHECK(false, "release() of what was not given");
  }
  int wait_fd() override { return -1; }
  short wait_events() override { return POLLIN; }
  void close() override { closed_ = true; }
  const Error& close_reason() const override { return reason_; }
  UnfinishedFrame unfinished() const override { return {}; }
  TransportStats stats() const override { return {}; }
  std::string peer_name() const override { return "pipe"; }

 private:
  std::deque<AlignedBuffer> coming_;
  std::vector<AlignedBuffer> lent_;
  SendTicket n_sent_ = 0, confirmed_ = 0, reported_ = 0;
  bool closed_ = false, told_ = false;
  const Error reason_{ErrorCode::kPeerGone, "pipe: closed by the peer"};
};

}  // namespace terrace::transport::test
