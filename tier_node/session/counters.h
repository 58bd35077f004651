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

}  // namespace terrace::node
