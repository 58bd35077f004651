// Bytes to and fro over a transport and nothing else: what a batch and its reply are compared with.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "common/threads/waiting.h"
#include "common/transport/connection.h"
#include "common/wire/frame.h"
#include "tests/e2e/support/gate_run.h"

namespace terrace::test {

// Frames of `out` bytes answered by such of `back`, by a thread of its own.
class Echo {
 public:
  // other_end: how that waits for the next request.
  Echo(transport::Transport& transport, std::size_t out, std::size_t back, Waiting other_end)
      : listener_(must(transport.listen("127.0.0.1:0", {}))),
        request_(frame_of(out)),
        reply_(frame_of(back)),
        other_end_(other_end) {
    thread_ = std::thread([this] { serve(); });
    client_ = must(transport.connect(listener_->address(), {}, std::chrono::seconds(10)));
  }
  ~Echo() {
    client_->close();
    thread_.join();
  }
  void trip(Waiting waiting) {
    send(*client_, request_);
    receive(*client_, waiting);
  }

 private:
  static std::vector<std::byte> frame_of(std::size_t bytes) {
    std::vector<std::byte> body(bytes - wire::kHeaderBytes - 2 * wire::kSectionHeaderBytes, std::byte{0x5a});
    wire::FrameBuilder builder;
    builder.begin({.type = wire::FrameType::kSlab});
    builder.add(wire::SectionTag::kSlabBytes, 0, body);
    std::vector<std::byte> frame;
    for (const auto part : builder.finish()) frame.insert(frame.end(), part.begin(), part.end());
    return frame;
  }
  static void send(transport::Connection& connection, const std::vector<std::byte>& frame) {
    const std::span<const std::byte> part(frame);
    (void)must(connection.send({&part, 1}));
  }
  static bool received(transport::Connection& connection) {
    std::array<transport::Event, 4> events;
    bool got = false;
    for (const transport::Event& event : std::span(events).first(connection.poll(events))) {
      if (event.kind != transport::Event::Kind::kReceived) continue;
      connection.release(event.frame);
      got = true;
    }
    return got;
  }
  // False: the connection has ended.
  static bool receive(transport::Connection& connection, Waiting waiting) {
    const auto start = std::chrono::steady_clock::now();
    while (!received(connection)) {
      if (connection.wait_fd() < 0) return false;
      if (waiting == Waiting::kBlock || std::chrono::steady_clock::now() - start > kSpinTime)
        (void)transport::wait(connection, std::chrono::milliseconds(200));
    }
    return true;
  }
  void serve() {
    std::unique_ptr<transport::Connection> peer;
    while (!peer) peer = must(listener_->accept());
    while (receive(*peer, other_end_)) send(*peer, reply_);
  }

  std::unique_ptr<transport::Listener> listener_;
  const std::vector<std::byte> request_, reply_;
  const Waiting other_end_;
  std::unique_ptr<transport::Connection> client_;
  std::thread thread_;
};

}  // namespace terrace::test
