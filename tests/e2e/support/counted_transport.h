// A transport that counts its connections, can refuse further ones, and knows what each of them has sent and at what
// pace.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/connection.h"
#include "common/transport/forwarding_connection.h"

namespace terrace::test {

// The connection below, and the pace that it was given. pace(): any thread.
class CountedConnection final : public transport::ForwardingConnection {
 public:
  explicit CountedConnection(std::unique_ptr<transport::Connection> below) : ForwardingConnection(std::move(below)) {}
  std::uint64_t pace() const { return pace_; }

  void set_pace(std::uint64_t bytes_per_second) override {
    pace_ = bytes_per_second;
    ForwardingConnection::set_pace(bytes_per_second);
  }

 private:
  std::atomic<std::uint64_t> pace_ = 0;
};

// Of the connections that connect() makes. Any threads, as far as `inner`, which outlives it, can.
class CountedTransport final : public transport::Transport {
 public:
  explicit CountedTransport(transport::Transport& inner) : inner_(inner) {}
  Result<std::unique_ptr<transport::Listener>> listen(const std::string& address,
                                                      const transport::Options& options) override {
    return inner_.listen(address, options);
  }
  Result<std::unique_ptr<transport::Connection>> connect(const std::string& address, const transport::Options& options,
                                                         std::chrono::milliseconds timeout) override {
    if (made_ == most_) return Error(ErrorCode::kPeerGone, address + ": refused by the test");
    auto connection = inner_.connect(address, options, timeout);
    if (!connection.ok()) return connection;
    ++made_;
    auto counted = std::make_unique<CountedConnection>(std::move(*connection));
    const std::lock_guard lock(mutex_);
    connections_.push_back(counted.get());
    return std::unique_ptr<transport::Connection>(std::move(counted));
  }
  const char* name() const override { return inner_.name(); }

  unsigned made() const { return made_; }
  void set_most(unsigned most) { most_ = most; }
  // By the connection of this number, which still lives and is not in use just now.
  std::uint64_t bytes_sent(std::size_t number) const {
    const std::lock_guard lock(mutex_);
    return connections_.at(number)->stats().bytes_sent;
  }
  // What it was last given, bytes a second; 0: as fast as the link takes them.
  std::uint64_t pace(std::size_t number) const {
    const std::lock_guard lock(mutex_);
    return connections_.at(number)->pace();
  }

 private:
  transport::Transport& inner_;
  std::atomic<unsigned> made_ = 0;
  std::atomic<unsigned> most_ = std::numeric_limits<unsigned>::max();
  mutable std::mutex mutex_;
  std::vector<const CountedConnection*> connections_;
};

}  // namespace terrace::test
