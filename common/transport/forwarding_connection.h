// What a connection over another connection passes on: all of it. A decorator overrides what it is made for. What
// Connection gets later has to be passed on here, in one place: the compiler tells of what has no default, and nothing
// tells of what has one, so it goes into forwarding_connection_test.cpp too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/transport/connection.h"

namespace terrace::transport {

class ForwardingConnection : public Connection {
 public:
  Result<SendTicket> send(std::span<const std::span<const std::byte>> parts) override { return inner_->send(parts); }
  std::size_t poll(std::span<Event> out) override { return inner_->poll(out); }
  void set_largest_frame(std::uint64_t bytes) override { inner_->set_largest_frame(bytes); }
  void release(std::span<const std::byte> frame) override { inner_->release(frame); }
  int wait_fd() override { return inner_->wait_fd(); }
  short wait_events() override { return inner_->wait_events(); }
  void set_pace(std::uint64_t bytes_per_second) override { inner_->set_pace(bytes_per_second); }
  std::optional<SentProgress> sent_progress() const override { return inner_->sent_progress(); }
  void close() override { inner_->close(); }
  const Error& close_reason() const override { return inner_->close_reason(); }
  UnfinishedFrame unfinished() const override { return inner_->unfinished(); }
  TransportStats stats() const override { return inner_->stats(); }
  ConnectionSecurity security() const override { return inner_->security(); }
  bool near_its_end() const override { return inner_->near_its_end(); }
  std::string peer_name() const override { return inner_->peer_name(); }

 protected:
  explicit ForwardingConnection(std::unique_ptr<Connection> inner) : inner_(std::move(inner)) {}

  // Ends after every member of a decorator: one that lends it memory has to own it itself (sealed).
  const std::unique_ptr<Connection> inner_;
};

}  // namespace terrace::transport
