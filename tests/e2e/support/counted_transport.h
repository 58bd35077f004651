// A transport that counts its connections, can refuse further ones, and knows what each of them has sent.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/connection.h"

namespace terrace::test {

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
    const std::lock_guard lock(mutex_);
    connections_.push_back(connection->get());
    return connection;
  }
  const char* name() const override { return inner_.name(); }

  unsigned made() const { return made_; }
  void set_most(unsigned most) { most_ = most; }
  // By the connection of this number, which still lives and is not in use just now.
  std::uint64_t bytes_sent(std::size_t number) const {
    const std::lock_guard lock(mutex_);
    return connections_.at(number)->stats().bytes_sent;
  }

 private:
  transport::Transport& inner_;
  std::atomic<unsigned> made_ = 0;
  std::atomic<unsigned> most_ = std::numeric_limits<unsigned>::max();
  mutable std::mutex mutex_;
  std::vector<const transport::Connection*> connections_;
};

}  // namespace terrace::test
