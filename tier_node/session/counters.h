// What a session did, for Status. Written by the thread that did it, read by any.
#pragma once

#include <atomic>
#include <cstdint>

namespace terrace::node {

struct Counters {
  std::atomic<std::uint64_t> batches = 0;  // answered
  std::atomic<std::uint64_t> rows = 0;
  std::atomic<std::uint64_t> pairs = 0;
  std::atomic<std::uint64_t> bytes_sent = 0;  // frames of all its connections
  std::atomic<std::uint64_t> bytes_received = 0;
  std::atomic<std::uint64_t> compute_us = 0;
};

// What all sessions of this node did since its start.
struct SessionTotals {
  std::uint64_t opened = 0;
  std::uint64_t closed = 0;  // at their coordinator's wish
  std::uint64_t failed = 0;  // ended otherwise: lease over, connection lost, an error, the end of a drain
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  std::uint64_t pairs = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t compute_us = 0;

  void add(const Counters& session) {
    batches += session.batches;
    rows += session.rows;
    pairs += session.pairs;
    bytes_sent += session.bytes_sent;
    bytes_received += session.bytes_received;
    compute_us += session.compute_us;
  }
};

}  // namespace terrace::node
