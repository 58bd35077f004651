// Two ends of one connection, and frames to send over it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/connection.h"
#include "common/wire/frame.h"

namespace terrace::transport::test {

using namespace std::chrono_literals;
using Part = std::span<const std::byte>;

// Far more than any step takes; only a hang reaches it.
inline constexpr auto kPatience = 60s;

// A frame of exactly `bytes` bytes (64, or a multiple of 16 from 80 on) whose payload depends on `sequence`.
class TestFrame {
 public:
  TestFrame(std::uint64_t sequence, std::size_t bytes) : data_(bytes <= 64 ? 0 : bytes - 80) {
    fill(sequence);
    builder_.begin({.type = wire::FrameType::kSlab, .lane = wire::Lane::kWeights, .sequence = sequence});
    if (bytes > 64) builder_.add(wire::SectionTag::kSlabBytes, 0, data_);
    parts_ = builder_.finish();
  }
  std::span<const Part> parts() const { return parts_; }
  // All bytes, one after the other.
  std::vector<std::byte> contiguous() const {
    std::vector<std::byte> all;
    for (const Part part : parts_) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

 private:
  // Blocks of 4 KB that differ in their number, so that a block out of its place shows.
  void fill(std::uint64_t sequence) {
    for (std::size_t i = 0; i < std::min(kBlock, data_.size()); ++i) data_[i] = std::byte(sequence * 31 + i);
    for (std::size_t at = kBlock; at < data_.size(); at += kBlock) {
      const std::size_t n = std::min(kBlock, data_.size() - at);
      std::memcpy(&data_[at], data_.data(), n);
      std::memcpy(&data_[at], &at, std::min(n, sizeof(at)));
    }
  }

  static constexpr std::size_t kBlock = 4096;
  std::vector<std::byte> data_;
  wire::FrameBuilder builder_;
  std::span<const Part> parts_;
};

inline std::unique_ptr<TestFrame> make_frame(std::uint64_t sequence, std::size_t bytes) {
  return std::make_unique<TestFrame>(sequence, bytes);
}

// One end and what it has been told.
struct End {
  std::unique_ptr<Connection> connection;
  std::vector<SendTicket> sent;
  std::vector<std::vector<std::byte>> frames;    // copies
  std::vector<std::span<const std::byte>> held;  // not released, if hold
  bool hold = false;
  bool copy = true;
  std::size_t received = 0;
  bool closed = false;
  std::size_t events_a_poll = 8;

  Connection* operator->() { return connection.get(); }

  // One poll(). Returns the number of events.
  std::size_t poll() {
    std::array<Event, 64> events;
    const std::size_t n = connection->poll(std::span(events).first(events_a_poll));
    for (const Event& event : std::span(events).first(n)) take(event);
    return n;
  }

  void release_all() {
    for (const auto frame : held) connection->release(frame);
    held.clear();
  }

 private:
  void take(const Event& event) {
    ASSERT_FALSE(closed) << "an event after kClosed";
    switch (event.kind) {
      case Event::Kind::kSent:
        sent.push_back(event.ticket);
        break;
      case Event::Kind::kClosed:
        closed = true;
        break;
      case Event::Kind::kReceived:
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(event.frame.data()) % 16, 0u);
        ++received;
        if (copy) frames.emplace_back(event.frame.begin(), event.frame.end());
        if (hold)
          held.push_back(event.frame);
        else
          connection->release(event.frame);
    }
  }
};

// Blocks until an end has something to say, at most 100 ms.
inline void wait_for_any(std::initializer_list<End*> ends) {
  std::vector<pollfd> entries;
  for (End* end : ends) entries.push_back({end->connection->wait_fd(), end->connection->wait_events(), 0});
  ::poll(entries.data(), entries.size(), 100);
}

// Polls the ends on this thread until `done`. False: it took longer than anything may.
inline bool pump(std::initializer_list<End*> ends, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline || testing::Test::HasFatalFailure()) return false;
    std::size_t events = 0;
    for (End* end : ends) events += end->poll();
    if (events == 0 && !done()) wait_for_any(ends);
  }
  return true;
}

// Polls for a while, to see that something does not happen.
inline void pump_briefly(std::initializer_list<End*> ends) {
  for (int quiet = 0; quiet < 5;) {
    std::size_t events = 0;
    for (End* end : ends) events += end->poll();
    if (events > 0) continue;
    ++quiet;
    ::poll(nullptr, 0, 10);
  }
}

struct Link {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  End client;
  End server;
};

inline std::unique_ptr<Connection> accept_one(Listener& listener) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    auto accepted = listener.accept();
    if (!accepted.ok()) {
      ADD_FAILURE() << accepted.error().text();
      return nullptr;
    }
    if (*accepted) return std::move(*accepted);
    pollfd entry{listener.wait_fd(), POLLIN, 0};
    ::poll(&entry, 1, 100);
  }
  ADD_FAILURE() << "nobody connected";
  return nullptr;
}

inline Link make_link(std::unique_ptr<Transport> transport, const Options& client, const Options& server) {
  Link link;
  link.transport = std::move(transport);
  auto listener = link.transport->listen("127.0.0.1:0", server);
  EXPECT_TRUE(listener.ok()) << listener.error().text();
  link.listener = std::move(*listener);
  auto connection = link.transport->connect(link.listener->address(), client, 5s);
  EXPECT_TRUE(connection.ok()) << connection.error().text();
  link.client.connection = std::move(*connection);
  link.server.connection = accept_one(*link.listener);
  return link;
}

}  // namespace terrace::transport::test
